@triton.jit
def round_bf16(x):
    """f64 to bf16, rounded once: to f32 by rounding to odd, then to nearest even."""
    y = x.to(tl.float32)
    bits = y.to(tl.int32, bitcast=True)
    back = y.to(tl.float64)
    inexact = (back != x) & (tl.abs(x) < float("inf")) & (x == x)
    away = tl.abs(back) > tl.abs(x)
    odd = tl.where(away, bits - 1, bits) | 1
    return tl.where(inexact, odd, bits).to(tl.float32, bitcast=True).to(tl.bfloat16)
