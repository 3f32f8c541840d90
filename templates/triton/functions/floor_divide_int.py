@triton.jit
def floor_divide_int(x, y):
    """x // y, rounded down; 0 where y is 0; the smallest integer // -1 wraps."""
    if x.dtype.is_int_signed():
        minus = y == -1
        d = tl.where((y == 0) | minus, 1, y)
        q = x // d
        r = x - q * d
        q = tl.where((r != 0) & ((r < 0) != (d < 0)), q - 1, q)
        q = tl.where(minus, 0 - x, q)
    else:
        q = x // tl.where(y == 0, 1, y)
    return tl.where(y == 0, 0, q)
