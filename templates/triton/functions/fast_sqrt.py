@triton.jit
def fast_sqrt(x):
    """The square root by the hardware."""
    return tl.sqrt(x)
