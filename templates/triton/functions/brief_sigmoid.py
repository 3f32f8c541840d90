@triton.jit
def brief_sigmoid(x, T: tl.constexpr):
    """1 / (1 + exp(-x)); for results T of 16 bits from exp(-|x|), so that small ones keep their digits."""
    if T.primitive_bitwidth == 16:
        e = brief_exp(tl.abs(x) * -1.0, T)
        r = inverse(1.0 + e)
        return tl.where(x < 0.0, e * r, r)
    else:
        return sigmoid(x)
