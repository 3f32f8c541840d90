@triton.jit
def stochastic_code(x, random, DIGITS: tl.constexpr, LEAST: tl.constexpr, TOP: tl.constexpr, OVER: tl.constexpr, NONE: tl.constexpr,
                    SIGN: tl.constexpr, SATURATE: tl.constexpr):
    """The code of x in such a format, rounded away from 0 with the probability that is left of a unit: 32 bits of it, and 32 random
    ones."""
    u = x.to(tl.int32, bitcast=True)
    a = u & 0x7FFFFFFF
    if LEAST == -126 and OVER << (23 - DIGITS) == 0x7F800000 and NONE > OVER and not SATURATE:  # a float's first bits, and a carry
        bits = random.to(tl.uint32)
        below = (a << (9 + DIGITS)).to(tl.uint32, bitcast=True) + bits
        m = (a >> (23 - DIGITS)) + (below < bits).to(tl.int32)
        return tl.where(a > 0x7F800000, NONE, m) | ((u >> (23 - DIGITS)) & SIGN)
    exponent = tl.maximum(a >> 23, 1)
    significand = ((a & 0x7FFFFF) | tl.where(a < 0x800000, 0, 0x800000)).to(tl.uint64)
    lost = 23 - DIGITS + tl.maximum(127 + LEAST - exponent, 0)  # of its bits
    places = (significand << 32) >> tl.minimum(lost, 63).to(tl.uint64)  # a fixed point, 32 bits behind it
    places = places + random.to(tl.uint32).to(tl.uint64)
    m = (tl.maximum(exponent - (127 + LEAST), 0) << DIGITS) + (places >> 32).to(tl.int32)
    m = tl.where((m > TOP) | (a >= 0x7F800000), TOP if SATURATE else OVER, m)
    return signed_code(tl.where(a > 0x7F800000, NONE, m), u if NONE > TOP else tl.where(a > 0x7F800000, a, u), NONE, SIGN)
