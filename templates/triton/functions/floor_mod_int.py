@triton.jit
def floor_mod_int(x, y):
    """x % y with the sign of y; x where y is 0."""
    if x.dtype.is_int_signed():
        d = tl.where((y == 0) | (y == -1), 1, y)
        r = x % d
        r = tl.where((r != 0) & ((r < 0) != (d < 0)), r + d, r)
    else:
        r = x % tl.where(y == 0, 1, y)
    return tl.where(y == 0, x, r)
