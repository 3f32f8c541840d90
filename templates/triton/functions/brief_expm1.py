@triton.jit
def brief_expm1(x, T: tl.constexpr):
    """exp(x) - 1; for results T of 16 bits the fast form."""
    if T.primitive_bitwidth == 16:
        return fast_expm1(x)
    else:
        return libdevice.expm1(x)
