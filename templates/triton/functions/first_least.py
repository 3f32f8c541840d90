@triton.jit
def first_least(a, i, b, j):
    """The lesser of two values with its place; NaN beats any, and of equals the first."""
    less = (b < a) | (b != b) & (a == a)
    equal = (b == a) | (b != b) & (a != a)
    second = less | equal & (j < i)
    return tl.where(second, b, a), tl.where(second, j, i)
