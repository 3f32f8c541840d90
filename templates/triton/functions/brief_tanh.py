@triton.jit
def brief_tanh(x, T: tl.constexpr):
    """tanh(x); for results T of 16 bits the fast form."""
    if T.primitive_bitwidth == 16:
        return fast_tanh(x)
    else:
        return hyperbolic_tangent(x)
