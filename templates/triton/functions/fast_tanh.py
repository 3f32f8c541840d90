@triton.jit
def fast_tanh(x):
    """tanh(x) as 1 - 2 / (1 + exp(2 |x|)), near 0 the beginning of its series."""
    a = tl.abs(x)
    far = 1.0 - 2.0 * inverse(1.0 + power_of_two(a * 2.8853901))
    near = x * (1.0 - x * x * 0.33333333)
    return tl.where(a < 0.05, near, tl.where(x < 0.0, far * -1.0, far))
