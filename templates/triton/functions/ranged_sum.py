@triton.jit
def ranged_sum(at, stride, order, step, present, D: tl.constexpr, lo, hi, key=None, own=None, same: tl.constexpr = True):
    """The sum of the elements from lo up to hi, or of those that an order has there, or whose own ranges have a key, or beside which a
    value is the range's own: by eights, whose sums are added up sixteen by sixteen. The order of the additions depends on the number of terms
    alone."""
    lo = tl.where(present, lo, 0)
    hi = tl.where(present, hi, 0)
    most = tl.max(tl.maximum(hi - lo, 0))
    none = tl.zeros(present.shape, D)
    total = none
    for fifth in range(0, most, 524288):
        fours = none
        for fourth in range(fifth, tl.minimum(fifth + 524288, most), 32768):
            threes = none
            for third in range(fourth, tl.minimum(fourth + 32768, most), 2048):
                twos = none
                for second in range(third, tl.minimum(third + 2048, most), 128):
                    end = tl.minimum(second + 128, most)
                    twos += ranged_eights(at, stride, order, step, D, lo, hi, second, end, key, own, same)
                threes += twos
            fours += threes
        total += fours
    return total
