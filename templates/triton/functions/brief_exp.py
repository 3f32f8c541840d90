@triton.jit
def brief_exp(x, T: tl.constexpr):
    """exp(x); for results T of 16 bits the fast form."""
    if T.primitive_bitwidth == 16:
        return fast_exp(x)
    else:
        return libdevice.exp(x)
