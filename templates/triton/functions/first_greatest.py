@triton.jit
def first_greatest(a, i, b, j):
    """The greater of two values with its place; NaN beats any, and of equals the first."""
    greater = (b > a) | (b != b) & (a == a)
    equal = (b == a) | (b != b) & (a != a)
    second = greater | equal & (j < i)
    return tl.where(second, b, a), tl.where(second, j, i)
