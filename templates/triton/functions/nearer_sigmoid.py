@triton.jit
def nearer_sigmoid(x):
    """1 / (1 + exp(-x)) from exp(-|x|), so that small ones keep their digits."""
    e = fast_exp(tl.abs(x) * -1.0)
    r = inverse(1.0 + e)
    return tl.where(x < 0.0, e * r, r)
