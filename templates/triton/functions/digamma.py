@triton.jit
def digamma(x):
    """The derivative of lgamma, in f64."""
    v = x.to(tl.float64)
    # below zero: psi(v) = psi(1 - v) - pi / tan(pi * v), the argument of tan reduced exactly
    below = v < 0.0
    z = tl.where(below, 1.0 - v, v)
    # psi(z) = psi(z + 1) - 1 / z, until z >= 10
    psi = z * 0.0
    for _ in range(10):
        small = z < 10.0
        psi = tl.where(small, psi - 1.0 / z, psi)
        z = tl.where(small, z + 1.0, z)
    # log(z) - 1 / (2 z) - sum of B(2k) / (2k z^2k)
    w = 1.0 / (z * z)
    tail = w * (0.08333333333333333 - w * (0.008333333333333333 - w * (0.003968253968253968 - w * (
        0.004166666666666667 - w * (0.007575757575757576 - w * (0.021092796092796094 - w * 0.08333333333333333))))))
    psi = tl.where(z < float("inf"), psi + (libdevice.log(z) - 0.5 / z - tail), z)
    part = v - libdevice.nearbyint(v)
    psi = tl.where(below, psi - 3.141592653589793 / libdevice.tan(part * 3.141592653589793), psi)
    psi = tl.where(below & (part == 0.0), float("nan"), psi)
    pole = libdevice.copysign(tl.full(v.shape, float("inf"), tl.float64), v) * -1.0
    return tl.where(v == 0.0, pole, psi).to(x.dtype)
