@triton.jit
def inverse(x):
    """1 / x by the hardware; 0 above 2^126."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return 1.0 / x
