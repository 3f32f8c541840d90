@triton.jit
def shift_right(x, n):
    """x >> n; the sign (0 or -1) where n is negative or not less than the width."""
    inside = (n >= 0) & (n < x.dtype.primitive_bitwidth)
    y = x >> tl.where(inside, n, x.dtype.primitive_bitwidth - 1)
    if x.dtype.is_int_signed():
        return y
    else:
        return tl.where(inside, y, 0)
