@triton.jit
def fast_div(x, y):
    """x / y by way of 1 / y, with both scaled where that would be no normal number."""
    size = tl.abs(y)
    scale = tl.where(size > 1.2676506e30, 8.8817842e-16, tl.where(size < 7.8886091e-31, 1.12589991e15, 1.0))
    return x * scale * inverse(y * scale)
