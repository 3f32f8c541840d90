@triton.jit
def square_root(x):
    """The square root, correctly rounded."""
    if x.dtype == tl.float64:
        return tl.sqrt(x)
    else:
        return tl.sqrt_rn(x)
