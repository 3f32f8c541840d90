@triton.jit
def brief_sigmoid(x, T: tl.constexpr):
    """1 / (1 + exp(-x)); for results T of 16 bits the fast form."""
    if T.primitive_bitwidth == 16:
        return fast_sigmoid(x)
    else:
        return sigmoid(x)
