// x >> n; 0 (-1 for a negative x) where n is negative or no less than the width.
template <typename T> inline T shift_right(T x, T n) {
    constexpr int W = 8 * sizeof(T);
    T y = x >> (n & (W - 1));
    return n < 0 || n >= W ? T(x < 0 ? -1 : 0) : y;
}
