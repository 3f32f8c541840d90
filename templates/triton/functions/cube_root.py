@triton.jit
def cube_root(x):
    """The cube root, in f64."""
    a = tl.abs(x.to(tl.float64))
    r = libdevice.pow(a, tl.full([], 0.3333333333333333, tl.float64))
    r = tl.where((a > 0.0) & (a < float("inf")), r - (r - a / (r * r)) / 3.0, r)
    return libdevice.copysign(r, x.to(tl.float64)).to(x.dtype)
