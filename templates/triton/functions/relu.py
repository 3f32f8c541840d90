@triton.jit
def relu(x):
    """x, or 0 below 0; NaN and -0.0 go through, where the machine's maximum of -0.0 and 0 is 0."""
    return tl.where(x >= 0, x, tl.where(x != x, x, 0))
