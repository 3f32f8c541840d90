@triton.jit
def carried(n, a, b):
    """n * (a - b), for n elements (or what they weigh) about a maximum a that rises to b, 0 where that is infinite; 0 where it stays."""
    return tl.where(a == b, 0.0, n * (finite_or_zero(a) - finite_or_zero(b)))
