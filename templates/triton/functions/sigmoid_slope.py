@triton.jit
def sigmoid_slope(x):
    """The derivative of sigmoid, exp(-|x|) / (1 + exp(-|x|))^2, of which it shares both."""
    e = libdevice.exp(tl.abs(x) * -1.0)
    d = 1.0 + e
    if x.dtype == tl.float32:  # as sigmoid inverts it
        r = inverse(d)
        r = tl.fma(r, tl.fma(d * -1.0, r, tl.full([], 1.0, tl.float32)), r)
        return e * r * r
    else:
        return e / (d * d)
