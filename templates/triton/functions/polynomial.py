@triton.jit
def polynomial(x, factors: tl.constexpr):
    """A polynomial by Horner's rule, its highest factor first; each step rounds once."""
    p = tl.full([], factors[0], tl.float32)
    for k in tl.static_range(1, len(factors)):
        p = tl.fma(p, x, tl.full([], factors[k], tl.float32))
    return p
