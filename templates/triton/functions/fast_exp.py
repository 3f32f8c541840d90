@triton.jit
def fast_exp(x):
    """exp(x) as the square of 2^(x log2(e) / 2), which has denormals."""
    root = power_of_two(x * 0.72134752)
    return root * root
