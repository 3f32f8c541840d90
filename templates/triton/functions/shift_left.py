@triton.jit
def shift_left(x, n):
    """x << n; 0 where n is negative or not less than the width."""
    inside = (n >= 0) & (n < x.dtype.primitive_bitwidth)
    return tl.where(inside, x << tl.where(inside, n, 0), 0)
