@triton.jit
def is_nan(x):
    return x != x
