@triton.jit
def ranged_min(at, stride, order, step, present, D: tl.constexpr, lo, hi):
    """The least of the elements from lo up to hi, or of those that an order has there; of none infinity."""
    lo = tl.where(present, lo, 0)
    hi = tl.where(present, hi, 0)
    found = tl.full(present.shape, float("inf"), D)
    for first in range(0, tl.max(tl.maximum(hi - lo, 0)), 4):
        a = least(term(at, stride, order, step, D, lo + first, hi, float("inf")), term(at, stride, order, step, D, lo + first + 1, hi, float("inf")))
        b = least(term(at, stride, order, step, D, lo + first + 2, hi, float("inf")), term(at, stride, order, step, D, lo + first + 3, hi, float("inf")))
        found = least(found, least(a, b))
    return found
