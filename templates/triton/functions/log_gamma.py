@triton.jit
def log_gamma(x):
    """log(abs(gamma(x))), in f64: the f32 function loses accuracy between -11 and -2."""
    return libdevice.lgamma(x.to(tl.float64)).to(x.dtype)
