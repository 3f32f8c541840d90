@triton.jit
def fused(a, b, c, T: tl.constexpr):
    """a * b + c; for results T of 16 bits rounded once."""
    if T.primitive_bitwidth == 16:
        return tl.fma(a, b, c)
    else:
        return a * b + c
