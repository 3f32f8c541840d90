def host_floor_divide(a, b):
    """a // b; 0 where b is 0."""
    return host_wrap(a // b) if b else 0
