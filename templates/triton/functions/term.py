@triton.jit
def term(at, stride, order, step, D: tl.constexpr, j, hi, none: tl.constexpr = 0, key=None, own=None, same: tl.constexpr = True):
    """The element at j, or that which an order has there, as D; where `order` is the ends of ranges, that at j if its own range has the key;
    where the last of `order` is to be the `own` value, that at j if it is (or, unless `same`, is not). Else, and from hi on, it is `none`:
    nothing is read there."""
    place, inside = j, j < hi
    if key is not None:
        inside &= (tl.load(order[0] + j * step[0], inside, 0) <= key) & (key < tl.load(order[1] + j * step[1], inside, 0))
        if own is not None:
            inside &= (widened(tl.load(order[2] + j * step[2], inside, 0), own.dtype) == own) == same
    elif own is not None:
        inside &= (widened(tl.load(order + j * step, inside, 0), own.dtype) == own) == same
    elif order is not None:
        place = tl.load(order + j * step, inside, 0)
    return tl.where(inside, widened(tl.load(at + place * stride, inside, 0), D), none)
