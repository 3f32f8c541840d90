def host_divide(a, b):
    """a / b in f64, also by zero."""
    return a / b if b else a * math.copysign(math.inf, b)
