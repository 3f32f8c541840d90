@triton.jit
def coarser_sigmoid(x):
    """1 / (1 + exp(-x)) by the hardware's tanh, 2^-11.9 off: small ones lose their digits."""
    if ASSEMBLY:
        return tl.fma(rougher_tanh(0.5 * x), 0.5, 0.5)
    else:
        return fast_sigmoid(x)
