@triton.jit
def spread(n, total, other_n, other_total):
    """What a sum of squares about the mean of n elements gains where that moves: n times the square of how far (Chan, Golub and LeVeque)."""
    return tl.where(n > 0, n * squared(centre(total, n) - centre(other_total, other_n)), 0.0)
