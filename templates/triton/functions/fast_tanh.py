@triton.jit
def fast_tanh(x):
    """tanh(x) as 1 - 2 / (1 + exp(2 |x|)), near 0 an odd polynomial (minimax, 2^-23 off)."""
    a = tl.abs(x)
    far = 1.0 - 2.0 * inverse(1.0 + power_of_two(a * 2.8853901))
    s = x * x
    near = x * polynomial(s, (-0.04779418, 0.13277628, -0.33331882, 1.0))
    return tl.where(a < 0.4, near, tl.where(x < 0.0, far * -1.0, far))
