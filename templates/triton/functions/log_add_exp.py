@triton.jit
def log_add_exp(a, b):
    """log(exp(a) + exp(b)); of infinities the greater, NaN if either is."""
    top = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    low = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    return tl.where(top == low, top + 0.6931471805599453, top + libdevice.log1p(tl.exp(low - top)))
