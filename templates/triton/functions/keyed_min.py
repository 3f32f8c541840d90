@triton.jit
def keyed_min(at, stride, keys, step, present, D: tl.constexpr, own, n):
    """The least of the elements whose key is a row's own, of n keys in an order: these, and then that order, are `keys`."""
    lo = keys_below(keys[0], step[0], present, n, own)
    hi = keys_below(keys[0], step[0], present, n, own + 1)
    return ranged_min(at, stride, keys[1], step[1], present, D, lo, hi)
