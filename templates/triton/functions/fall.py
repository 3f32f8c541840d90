@triton.jit
def fall(a, b):
    """exp(a - b) for a maximum a that rises to b; 1 also where both are infinite."""
    return tl.where(a == b, 1.0, exp_below(a - b))
