@triton.jit
def either(a, b):
    return a | b
