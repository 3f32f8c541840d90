@triton.jit
def fast_exp2(x):
    """2^x as the square of 2^(x / 2), which has denormals."""
    root = power_of_two(x * 0.5)
    return root * root
