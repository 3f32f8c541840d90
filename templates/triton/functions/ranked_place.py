@triton.jit
def ranked_place(rank, bits, n):
    """The place that has a rank, counted from behind a row of n elements: n itself where nothing reaches, -1 where nothing is needed."""
    return tl.minimum((tl.full([], 1, tl.int64) << bits) - 2 - rank, n)
