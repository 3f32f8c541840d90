@triton.jit
def least(a, b):
    """The lesser of two, NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
