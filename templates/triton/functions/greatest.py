@triton.jit
def greatest(a, b):
    """The greater of two, NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
