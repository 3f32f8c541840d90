@triton.jit
def both(a, b):
    return a & b
