@triton.jit
def again(x, HOLD: tl.constexpr):
    """x as it is in memory; HOLD: the compiler forgets what it has computed of 16 bits, and so keeps these alone."""
    if ASSEMBLY and HOLD and x.dtype.primitive_bitwidth == 16:
        return tl.inline_asm_elementwise("", "=r,0", [x], x.dtype, False, 2)
    else:
        return x
