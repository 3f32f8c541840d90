@triton.jit
def ranged_eights(at, stride, order, step, D: tl.constexpr, lo, hi, begin, end, key=None, own=None, same: tl.constexpr = True):
    """The sum of the elements from number `begin` behind lo up to `end`, by eights; see `ranged_sum`. Triton goes through a loop twice, so
    the fifth of five, one in another, 32 times; a function that is called there it reads once."""
    total = tl.zeros(lo.shape, D)
    for first in range(begin, end, 8):
        a = term(at, stride, order, step, D, lo + first, hi, 0, key, own, same)
        a += term(at, stride, order, step, D, lo + first + 1, hi, 0, key, own, same)
        b = term(at, stride, order, step, D, lo + first + 2, hi, 0, key, own, same)
        b += term(at, stride, order, step, D, lo + first + 3, hi, 0, key, own, same)
        c = term(at, stride, order, step, D, lo + first + 4, hi, 0, key, own, same)
        c += term(at, stride, order, step, D, lo + first + 5, hi, 0, key, own, same)
        d = term(at, stride, order, step, D, lo + first + 6, hi, 0, key, own, same)
        d += term(at, stride, order, step, D, lo + first + 7, hi, 0, key, own, same)
        total += (a + b) + (c + d)
    return total
