def host_power(a, b):
    """a ** b in f64; infinite or NaN where Python raises."""
    try:
        return math.pow(a, b)
    except (OverflowError, ValueError):
        return host_f64(torch.pow, a, b)
