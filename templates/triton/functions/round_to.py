@triton.jit
def round_to(x, D: tl.constexpr):
    """x in the float dtype D, rounded once. Of integers that f32 may not have, the leading 20 bits reach it, rounded to odd."""
    if x.dtype == tl.float64 and D == tl.bfloat16:
        return round_bf16(x)
    elif x.dtype.is_int() and x.dtype.primitive_bitwidth >= 32 and D == tl.bfloat16:
        exponent = (x.to(tl.float32).to(tl.int32, bitcast=True) >> 23) & 255
        shift = tl.maximum(exponent - 147, 0).to(x.dtype)
        kept = (x >> shift) << shift
        return (kept | ((kept != x).to(x.dtype) << shift)).to(tl.float32).to(D)
    elif D.primitive_bitwidth == 16:
        return (x if x.dtype.is_floating() else x.to(tl.float32)).to(D)
    else:
        return x.to(D)
