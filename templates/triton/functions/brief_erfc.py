@triton.jit
def brief_erfc(x, T: tl.constexpr):
    """erfc(x); for results T of 16 bits the fast form."""
    if T.primitive_bitwidth == 16:
        return fast_erfc(x)
    else:
        return error_complement(x)
