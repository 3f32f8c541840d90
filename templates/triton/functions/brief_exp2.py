@triton.jit
def brief_exp2(x, T: tl.constexpr):
    """2^x; for results T of 16 bits the fast form."""
    if T.primitive_bitwidth == 16:
        return fast_exp2(x)
    else:
        return libdevice.exp2(x)
