@triton.jit
def power_of_two(x):
    """2^x by the hardware; below 2^-126 it is 0."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return tl.exp2(x)
