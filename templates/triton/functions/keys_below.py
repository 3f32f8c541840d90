@triton.jit
def keys_below(at, step, present, n, own):
    """How many of n keys, which stand in their order, are below a row's own."""
    low = present.to(tl.int64) * 0
    high = tl.where(present, n, 0) + low
    left = n
    while left > 0:
        middle = (low + high) // 2
        more = (low < high) & (tl.load(at + middle * step, low < high, 0) < own)
        high = tl.where(more, high, middle)
        low = tl.where(more, middle + 1, low)
        left = left // 2
    return low
