@triton.jit
def rough_tanh(x, T: tl.constexpr):
    """tanh(x); for a bf16 by the hardware, 2^-10.9 of the value off."""
    if T == tl.bfloat16 and ASSEMBLY:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return brief_tanh(x, T)
