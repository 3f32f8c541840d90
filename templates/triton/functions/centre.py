@triton.jit
def centre(total, n):
    """The mean of n elements with this sum; 0 of none."""
    return tl.where(n > 0, divide(total, tl.where(n > 0, n, 1.0)), 0.0)
