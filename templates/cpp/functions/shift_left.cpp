// x << n; 0 where n is negative or no less than the width.
template <typename T> inline T shift_left(T x, T n) {
    constexpr int W = 8 * sizeof(T);
    uint64_t u = uint64_t(x) << (n & (W - 1));
    return n < 0 || n >= W ? T(0) : T(u);
}
