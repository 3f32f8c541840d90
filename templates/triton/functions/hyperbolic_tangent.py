@triton.jit
def hyperbolic_tangent(x):
    """tanh(x), without a branch: from 0.62 on 1 - 2 / (1 + exp(2 |x|)), below an odd polynomial (minimax, 2^-28 off)."""
    if x.dtype == tl.float32:
        a, s = tl.abs(x), x * x
        d = 1.0 + power_of_two(a * 2.8853901)
        r = inverse(d)
        r = tl.fma(r, tl.fma(d * -1.0, r, 1.0), r)
        far = tl.where(a > 9.1, 1.0, 1.0 - 2.0 * r)
        near = tl.fma(x * s, polynomial(s, (-0.0057547935, 0.020682545, -0.053752698, 0.13331594, -0.33333287)), x)
        return tl.where(a < 0.62, near, tl.where(x < 0.0, far * -1.0, far))
    else:
        return libdevice.tanh(x)
