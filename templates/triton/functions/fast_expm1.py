@triton.jit
def fast_expm1(x):
    """exp(x) - 1 by the hardware, about 0 a polynomial (minimax, 2^-23 off)."""
    p = polynomial(x, (0.001387575, 0.0084023934, 0.041668971, 0.16666135, 0.49999983, 1.0))
    return tl.where(tl.abs(x) < 0.5, x * p, power_of_two(x * 1.442695) - 1.0)
