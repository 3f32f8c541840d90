@triton.jit
def exp_below(x):
    """exp(x) for x <= 0, as a term of a sum whose greatest term is 1; a float's is 0 below 2^-126."""
    return tl.exp(x) if x.dtype == tl.float64 else power_of_two(x * 1.442695)
