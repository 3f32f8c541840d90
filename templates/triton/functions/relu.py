@triton.jit
def relu(x):
    """x, or 0 below 0; NaN and -0.0 go through."""
    return tl.where(x < 0, 0, x)
