@triton.jit
def brief_div(x, y, T: tl.constexpr):
    """x / y; for results T of 16 bits the fast form."""
    if T.primitive_bitwidth == 16:
        return fast_div(x, y)
    else:
        return divide(x, y)
