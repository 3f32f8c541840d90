def host_is_nan(x):
    return x != x
