@triton.jit
def floor_mod(x, y):
    """x - y * floor(x / y), exact but for the last addition."""
    r = libdevice.fmod(x, y)
    return tl.where((r != 0.0) & ((r < 0.0) != (y < 0.0)), r + y, r)
