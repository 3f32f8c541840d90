@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), of full relative accuracy for negative x too."""
    e = libdevice.exp(tl.abs(x) * -1.0)
    d = 1.0 + e
    if x.dtype == tl.float32:  # d lies between 1 and 2: one step of Newton's makes its inverse good to half a unit
        r = inverse(d)
        r = tl.fma(r, tl.fma(d * -1.0, r, 1.0), r)
        return tl.where(x < 0.0, e, 1.0) * r
    else:
        return tl.where(x < 0.0, e, 1.0) / d
