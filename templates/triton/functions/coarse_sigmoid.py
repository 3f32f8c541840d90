@triton.jit
def coarse_sigmoid(x, T: tl.constexpr):
    """1 / (1 + exp(-x)); for results T in bf16 the fast form, as a term beside one that is not small."""
    if T == tl.bfloat16:
        return coarser_sigmoid(x)
    else:
        return brief_sigmoid(x, T)
