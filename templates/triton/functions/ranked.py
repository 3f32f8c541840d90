@triton.jit
def ranked(rank, T: tl.constexpr, F: tl.constexpr):
    """The element of T, a float, that has a rank in the order of all of them, as F: NaN behind infinity, -infinity before it."""
    BITS: tl.constexpr = T.primitive_bitwidth
    INTEGER: tl.constexpr = tl.int16 if BITS == 16 else tl.int32 if BITS == 32 else tl.int64
    upper = (rank >> (BITS - 1) & 1) == 1
    bits = tl.where(upper, rank ^ (tl.full([], 1, tl.int64) << (BITS - 1)), ~rank)
    x = widened(bits.to(INTEGER).to(T, bitcast=True), F)
    return tl.where(upper | (x == x), x, float("-inf"))
