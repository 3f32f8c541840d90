def host_shift_right(a, n):
    """a >> n; the sign (0 or -1) where n is negative or not less than 64."""
    return a >> n if 0 <= n < 64 else -(a < 0)
