@triton.jit
def widened(x, D: tl.constexpr):
    """x in the wider dtype D. bf16 by its bits: LLVM would make a product of two bf16 that is stored as f16 one of two f16, which may
    overflow."""
    if x.dtype == tl.bfloat16 and D == tl.float32:
        return (x.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        return x.to(D)
