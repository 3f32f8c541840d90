def host_sign(x):
    """1, 0 or -1; 0 for NaN."""
    return (x > 0) - (x < 0)
