@triton.jit
def divide(x, y):
    """x / y, correctly rounded."""
    if x.dtype == tl.float64:
        return x / y
    else:
        return tl.div_rn(x, y)
