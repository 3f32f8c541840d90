@triton.jit
def term(at, stride, order, step, D: tl.constexpr, j, hi, none: tl.constexpr = 0):
    """The element at j, or that which an order has there, as D; `none` from hi on: nothing is read there."""
    place = j
    if order is not None:
        place = tl.load(order + j * step, j < hi, 0)
    return tl.where(j < hi, widened(tl.load(at + place * stride, j < hi, 0), D), none)
