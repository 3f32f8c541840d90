def host_floor_mod(a, b):
    """a % b with the sign of b; a where b is 0."""
    return a % b if b else a
