@triton.jit
def nearer_erfc(x):
    """erfc(x) as exp(-x^2) times a polynomial in 1 / (1 + 0.36 |x|) (minimax, 2^-24.4 off), reflected below 0."""
    t = inverse(1.0 + tl.abs(x) * 0.36)
    root = power_of_two(x * x * -0.72134752)
    p = polynomial(t, (0.057070687, -0.31090868, 0.55799079, -0.36462641, 0.36650845, 0.082992293, 0.2065819, 0.20118792, 0.20320301))
    y = p * t * (root * root)
    return tl.where(x < 0.0, 2.0 - y, y)
