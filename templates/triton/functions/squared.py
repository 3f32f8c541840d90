@triton.jit
def squared(x):
    return x * x
