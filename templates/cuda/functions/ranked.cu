// The element of T, a float, that has a rank in the order of all of them, as F: NaN behind infinity, -infinity before it.
template <typename F, typename T> __device__ inline F ranked(u64 rank) {
    constexpr u64 TOP = u64(1) << (8 * sizeof(T) - 1);
    const u64 bits = rank & TOP ? rank ^ TOP : ~rank;
    F x;
    if constexpr (sizeof(T) == 2) { T stored; stored.bits = (unsigned short)bits; x = F(stored); }
    else if constexpr (sizeof(T) == 4) x = __uint_as_float(u32(bits));
    else x = __longlong_as_double(i64(bits));
    return rank & TOP || x == x ? x : F(-infinity());
}
