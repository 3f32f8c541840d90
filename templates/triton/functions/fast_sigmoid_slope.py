@triton.jit
def fast_sigmoid_slope(x):
    """The derivative of sigmoid, which shares its exponential and inverse."""
    e = fast_exp(tl.abs(x) * -1.0)
    r = inverse(1.0 + e)
    return e * r * r
