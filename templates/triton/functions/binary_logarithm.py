@triton.jit
def binary_logarithm(x):
    """log2(x) by the hardware, 2^-22 off, of numbers beyond 1/2 and 2 relatively."""
    return tl.inline_asm_elementwise("lg2.approx.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1) if ASSEMBLY else tl.log2(x)
