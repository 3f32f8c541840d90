@triton.jit
def is_inf(x):
    return tl.abs(x) == float("inf")
