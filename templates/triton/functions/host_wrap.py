def host_wrap(n):
    """The integer n modulo 2 ** 64, as an i64."""
    return (n + 2**63) % 2**64 - 2**63
