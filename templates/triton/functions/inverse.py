@triton.jit
def inverse(x):
    """1 / x by the hardware; 0 above 2^126."""
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1) if ASSEMBLY else 1.0 / x
