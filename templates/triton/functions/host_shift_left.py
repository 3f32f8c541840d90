def host_shift_left(a, n):
    """a << n; 0 where n is negative or not less than 64."""
    return host_wrap(a << n) if 0 <= n < 64 else 0
