@triton.jit
def masses(p, a, q, b):
    """p * exp(a - top) + q * exp(b - top), top being the greater of a and b; of equal infinities exp(0)."""
    low = libdevice.exp(tl.where(a == b, 0.0, tl.where(a < b, a - b, b - a)))
    return tl.where(a < b, p * low + q, p + q * low)
