@triton.jit
def brief_log1p(x, T: tl.constexpr):
    """log(1 + x); for results T of 16 bits the fast form."""
    if T.primitive_bitwidth == 16:
        return fast_log1p(x)
    else:
        return libdevice.log1p(x)
