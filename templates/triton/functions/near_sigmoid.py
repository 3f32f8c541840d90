@triton.jit
def near_sigmoid(x, T: tl.constexpr):
    """1 / (1 + exp(-x)) where differences are taken; for results T of 16 bits the nearer one of the fast forms."""
    if T.primitive_bitwidth == 16:
        return nearer_sigmoid(x)
    else:
        return sigmoid(x)
