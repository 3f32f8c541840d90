@triton.jit
def brief_sigmoid_slope(x, T: tl.constexpr):
    """The derivative of sigmoid; for results T of 16 bits the fast form."""
    if T.primitive_bitwidth == 16:
        return fast_sigmoid_slope(x)
    else:
        return sigmoid_slope(x)
