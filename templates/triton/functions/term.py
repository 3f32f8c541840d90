@triton.jit
def term(at, stride, order, step, D: tl.constexpr, j, hi, none: tl.constexpr = 0, key=None):
    """The element at j, or that which an order has there, as D; where `order` is the ends of ranges, that at j if its own range has the key.
    Else, and from hi on, it is `none`: nothing is read there."""
    place, inside = j, j < hi
    if key is not None:
        inside &= (tl.load(order[0] + j * step[0], inside, 0) <= key) & (key < tl.load(order[1] + j * step[1], inside, 0))
    elif order is not None:
        place = tl.load(order + j * step, inside, 0)
    return tl.where(inside, widened(tl.load(at + place * stride, inside, 0), D), none)
