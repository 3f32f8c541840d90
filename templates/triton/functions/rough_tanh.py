@triton.jit
def rough_tanh(x, T: tl.constexpr):
    """tanh(x); for results T in bf16 the fast form."""
    if T == tl.bfloat16:
        return rougher_tanh(x)
    else:
        return brief_tanh(x, T)
