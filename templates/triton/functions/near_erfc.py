@triton.jit
def near_erfc(x, T: tl.constexpr):
    """erfc(x) where differences are taken; for results T of 16 bits the nearer one of the fast forms."""
    if T.primitive_bitwidth == 16:
        return nearer_erfc(x)
    else:
        return error_complement(x)
