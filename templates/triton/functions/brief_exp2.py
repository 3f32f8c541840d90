@triton.jit
def brief_exp2(x, T: tl.constexpr):
    """2^x; for results T of 16 bits the square of 2^(x / 2), which has denormals."""
    if T.primitive_bitwidth == 16:
        root = power_of_two(x * 0.5)
        return root * root
    else:
        return libdevice.exp2(x)
