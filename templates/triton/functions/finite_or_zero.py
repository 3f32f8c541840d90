@triton.jit
def finite_or_zero(x):
    """x where it is finite, else 0."""
    return tl.where(is_finite(x), x, 0.0)
