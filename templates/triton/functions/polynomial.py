@triton.jit
def polynomial(x, factors: tl.constexpr):
    """A polynomial by Horner's rule, its highest factor first; each step rounds once."""
    p = factors[0]
    for k in tl.static_range(1, len(factors)):
        p = tl.fma(p, x, factors[k])
    return p
