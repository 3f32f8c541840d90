def host_cube_root(x):
    """The cube root in f64: an approximation, then one exact step of Newton's."""
    if x == 0 or not math.isfinite(x):
        return x
    y = Fraction(math.copysign(abs(x) ** (1 / 3), x))
    return float(y - (y**3 - Fraction(x)) / (3 * y**2))
