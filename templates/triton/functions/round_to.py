@triton.jit
def round_to(x, D: tl.constexpr):
    """x in the float dtype D, rounded once; integers reach 16 bits by way of f32."""
    if x.dtype == tl.float64 and D == tl.bfloat16:
        return round_bf16(x)
    elif D.primitive_bitwidth == 16:
        return (x if x.dtype.is_floating() else x.to(tl.float32)).to(D)
    else:
        return x.to(D)
