@triton.jit
def brief_sqrt(x, T: tl.constexpr):
    """The square root, for results T of 16 bits by the hardware."""
    if T.primitive_bitwidth == 16:
        return tl.sqrt(x)
    else:
        return square_root(x)
