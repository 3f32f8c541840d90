@triton.jit
def place_bits(n):
    """The bits that the places in a row of n elements take, with the one before the first and the one behind the last."""
    bits = 1
    while (tl.full([], 1, tl.int64) << bits) < n + 2:
        bits += 1
    return bits
