@triton.jit
def brief_sqrt(x, T: tl.constexpr):
    """The square root; for results T of 16 bits the fast form."""
    if T.primitive_bitwidth == 16:
        return fast_sqrt(x)
    else:
        return square_root(x)
