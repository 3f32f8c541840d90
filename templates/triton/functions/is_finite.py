@triton.jit
def is_finite(x):
    return tl.abs(x) < float("inf")
