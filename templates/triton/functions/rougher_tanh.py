@triton.jit
def rougher_tanh(x):
    """tanh(x) by the hardware, 2^-10.9 of the value off."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return fast_tanh(x)
