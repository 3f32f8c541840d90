@triton.jit
def sign(x):
    """1, 0 or -1; 0 for NaN."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)
