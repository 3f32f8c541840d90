@triton.jit
def four_words(seed, offset, counter):
    """The four words that Philox 4x32-10 makes of the counter (offset, counter) under the key `seed`."""
    o, k = tl.cast(offset, tl.uint64), tl.cast(seed, tl.uint64)
    c0 = o.to(tl.uint32) + tl.zeros_like(counter).to(tl.uint32)
    c1 = (o >> 32).to(tl.uint32)
    c2 = counter.to(tl.uint32)
    c3 = (counter >> 32).to(tl.uint32)
    k0 = k.to(tl.uint32)
    k1 = (k >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        p = c0.to(tl.uint64) * 0xD2511F53
        q = c2.to(tl.uint64) * 0xCD9E8D57
        c0 = (q >> 32).to(tl.uint32) ^ c1 ^ k0
        c1 = q.to(tl.uint32)
        c2 = (p >> 32).to(tl.uint32) ^ c3 ^ k1
        c3 = p.to(tl.uint32)
        k0 += tl.full([], 0x9E3779B9, tl.uint32)
        k1 += tl.full([], 0xBB67AE85, tl.uint32)
    return c0, c1, c2, c3


@triton.jit
def philox(seed, offset, i, EVEN: tl.constexpr = 1, KEEPS: tl.constexpr = -1, SETS: tl.constexpr = 0):
    """Word i % 4 of the four of the counter (offset, i / 4). Of rows of neighbours that begin at multiples of EVEN four share one; of their
    own places the bits in KEEPS have stayed and those in SETS are set, which changes the last two at most."""
    if EVEN % 4 == 0 and i.shape[len(i.shape) - 1] % 4 == 0:
        first, _ = tl.split(tl.reshape(i, (i.shape[0], i.shape[1] // 4, 2, 2)))
        first, _ = tl.split(first)
        c = four_words(seed, offset, first.to(tl.uint64) >> 2)
        FIRST: tl.constexpr = SETS % 4
        SECOND: tl.constexpr = (KEEPS & 1 | SETS) % 4
        THIRD: tl.constexpr = (KEEPS & 2 | SETS) % 4
        FOURTH: tl.constexpr = (KEEPS & 3 | SETS) % 4
        shape: tl.constexpr = (c[0].shape[0], i.shape[1])  # the key may have rows that i has not
        words = tl.reshape(tl.join(tl.join(c[FIRST], c[THIRD]), tl.join(c[SECOND], c[FOURTH])), shape)
    else:
        c0, c1, c2, c3 = four_words(seed, offset, i.to(tl.uint64) >> 2)
        odd = (i & 1) != 0
        words = tl.where((i & 2) != 0, tl.where(odd, c3, c2), tl.where(odd, c1, c0))
    return words.to(tl.int64)
