@triton.jit
def tanh_slope(x, T: tl.constexpr):
    """1 - tanh(x)^2; for results T of 16 bits from exp(-2 |x|), of which no digit cancels: (2 exp(-|x|) / (1 + exp(-2 |x|)))^2."""
    if T.primitive_bitwidth == 16:
        root = power_of_two(tl.abs(x) * -1.44269504)
        half = root * inverse(tl.fma(root, root, tl.full([], 1.0, tl.float32)))
        return (half + half) * (half + half)
    else:
        y = hyperbolic_tangent(x)
        return 1.0 - y * y
