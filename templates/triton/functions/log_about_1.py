@triton.jit
def log_about_1(x):
    """log(1 + x) for x from -0.3 to 0.42 (minimax, 2^-22.2 off)."""
    return x * polynomial(x, (-0.10206996, 0.16313091, -0.17258743, 0.19893165, -0.24969022, 0.33335035, -0.50000361, 1.0))
