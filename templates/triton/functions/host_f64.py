def host_f64(function, *numbers):
    """A function of torch, of numbers in f64."""
    return function(*(torch.tensor(float(x), dtype=torch.float64) for x in numbers)).item()
