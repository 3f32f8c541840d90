@triton.jit
def saturate(x, D: tl.constexpr):
    """The float x as integer: towards zero, saturated, 0 for NaN."""
    bits: tl.constexpr = D.primitive_bitwidth
    low: tl.constexpr = -(2 ** (bits - 1)) if D.is_int_signed() else 0
    high: tl.constexpr = 2 ** (bits - 1) - 1 if D.is_int_signed() else 2**bits - 1
    # both are powers of two, or 0: exact in every float
    under = x < low * 1.0
    over = x >= (high + 1) * 1.0
    y = tl.where((x == x) & ~under & ~over, x, 0.0).to(D)
    y = tl.where(under, tl.full([], low, D), y)
    return tl.where(over, tl.full([], high, D), y)
