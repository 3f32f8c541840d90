@triton.jit
def floor_divide(x, y):
    """floor(x / y) of the exact quotient."""
    r = libdevice.fmod(x, y)
    q = divide(x - r, y)
    q = tl.where((r != 0.0) & ((r < 0.0) != (y < 0.0)), q - 1.0, q)
    whole = libdevice.floor(q)
    whole = tl.where(q - whole > 0.5, whole + 1.0, whole)
    plain = divide(x, y)
    whole = tl.where(q != 0.0, whole, libdevice.copysign(q * 0.0, plain))
    return tl.where(y == 0.0, plain, whole)
