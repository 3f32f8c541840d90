@triton.jit
def brief_exp(x, T: tl.constexpr):
    """exp(x); for results T of 16 bits the square of 2^(x log2(e) / 2), which has denormals."""
    if T.primitive_bitwidth == 16:
        root = power_of_two(x * 0.72134752)
        return root * root
    else:
        return libdevice.exp(x)
