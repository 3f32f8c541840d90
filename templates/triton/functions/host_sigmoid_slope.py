def host_sigmoid_slope(x):
    """The derivative of sigmoid."""
    e = host_f64(torch.exp, -abs(x))
    return e / (1.0 + e) ** 2
