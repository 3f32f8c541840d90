// The element of T, a float, that has a rank in the order of all of them, as F: NaN behind infinity, -infinity before it.
template <typename F, typename T> inline F ranked(uint64_t rank) {
    constexpr uint64_t TOP = uint64_t(1) << (8 * sizeof(T) - 1);
    const uint64_t bits = rank & TOP ? rank ^ TOP : ~rank;
    T stored;
    std::memcpy(&stored, &bits, sizeof(T));
    const F x = F(stored);
    return rank & TOP || x == x ? x : -F(INFINITY);
}
