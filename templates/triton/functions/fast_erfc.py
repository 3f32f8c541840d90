@triton.jit
def fast_erfc(x):
    """erfc(x) as exp(-x^2) times a polynomial in 1 / (1 + 0.44 |x|) (minimax, 2^-17.5 off), reflected below 0."""
    t = inverse(1.0 + tl.abs(x) * 0.44)
    root = power_of_two(x * x * -0.72134752)
    p = polynomial(t, (-0.14610618, 0.35065392, 0.040729534, 0.26358718, 0.24256932, 0.24856104))
    y = p * t * root * root
    return tl.where(x < 0.0, 2.0 - y, y)
