@triton.jit
def fast_log(x):
    """log(x) by the hardware, about 1 a polynomial in x - 1, which is exact there."""
    return tl.where((x > 0.7) & (x < 1.42), log_about_1(x - 1.0), binary_logarithm(x) * 0.69314718)
