@triton.jit
def sigmoid_slope(x):
    """The derivative of sigmoid, exp(-|x|) / (1 + exp(-|x|))^2."""
    e = libdevice.exp(tl.abs(x) * -1.0)
    d = 1.0 + e
    return tl.div_rn(e, d * d) if x.dtype == tl.float32 else e / (d * d)
