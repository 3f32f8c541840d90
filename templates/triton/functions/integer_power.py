@triton.jit
def integer_power(x, n):
    """x ** n, wrapping; a negative n leaves 0, but for x = 1 and x = -1."""
    x, n = tl.broadcast(x, n)
    y = x * 0 + 1
    square = x
    bits = n
    for _ in range(x.dtype.primitive_bitwidth):
        y = tl.where((bits & 1) != 0, y * square, y)
        square = square * square
        bits = bits >> 1
    if x.dtype.is_int_signed():
        unit = tl.where(x == 1, 1, tl.where(x == -1, 1 - 2 * (n & 1), x * 0))
        y = tl.where(n < 0, unit, y)
    return y
