@triton.jit
def ranked_integer(rank, T: tl.constexpr):
    """The integer of T that has a rank in the order of all of them."""
    if T.is_int_signed():
        rank = rank ^ (tl.full([], 1, tl.int64) << (T.primitive_bitwidth - 1))
    return rank.to(T)
