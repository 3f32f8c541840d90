@triton.jit
def brief_log(x, T: tl.constexpr):
    """log(x); for results T of 16 bits the fast form."""
    if T.primitive_bitwidth == 16:
        return fast_log(x)
    else:
        return libdevice.log(x)
