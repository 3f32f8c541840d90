@triton.jit
def walk(index, sizes, steps, RANK: tl.constexpr, DENSE: tl.constexpr, VECTOR: tl.constexpr):
    """How far element number `index` lies from the first along RANK dims, given last dim first.  DENSE: the last stride is 1.
    The other strides are multiples of VECTOR, as is the last size where it is DENSE."""
    at = index * 0
    for d in tl.static_range(RANK):
        here = index
        if d + 1 < RANK:
            size = sizes[d].to(index.dtype)
            if d == 0 and DENSE:
                size = size // VECTOR * VECTOR
            here = index % size
            index = index // size
        if d > 0 or not DENSE:
            here *= steps[d].to(index.dtype) // VECTOR * VECTOR
        at = here if d == 0 else at + here
    if DENSE and RANK > 1 and VECTOR == 1 and at.numel > 1:  # nearly all have a neighbour: a tile lies as without leading dims
        at = tl.max_contiguous(at, [at.shape[0], at.shape[1]])
    return at
