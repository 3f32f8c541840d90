@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), of full relative accuracy for negative x too."""
    e = libdevice.exp(tl.abs(x) * -1.0)
    return divide(tl.where(x < 0.0, e, 1.0), 1.0 + e)
