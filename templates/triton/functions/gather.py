@triton.jit
def gather(at, size, stride, present, D: tl.constexpr, index):
    """The element at `index` of `size`, as D; 0 where it lies outside: nothing is read there."""
    index = tl.where(present, index, -1)  # one a row, also where all rows have the same
    return widened(tl.load(at + index * stride, (index >= 0) & (index < size), 0), D)
