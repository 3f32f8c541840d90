@triton.jit
def descent(a, b):
    """exp(a - b) for a maximum a that rises to b; exp(a) where b is infinite, so that what is multiplied is about 0."""
    return tl.where(a == b, 1.0, exp_below(tl.where(b == float("inf"), a, a - b)))
