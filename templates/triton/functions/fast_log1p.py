@triton.jit
def fast_log1p(x):
    """log(1 + x) by the hardware, about 0 a polynomial."""
    return tl.where((x > -0.3) & (x < 0.42), log_about_1(x), binary_logarithm(1.0 + x) * 0.69314718)
