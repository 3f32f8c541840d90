def host_integer_power(a, n):
    """a ** n, wrapping; a negative n leaves 0, but for a = 1 and a = -1."""
    if n < 0:
        return a ** (n % 2) if abs(a) == 1 else 0
    return host_wrap(pow(a, n, 2**64))
