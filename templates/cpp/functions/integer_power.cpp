// x to the power n, wrapping; a negative n gives 1 / x^-n cut to an integer (0 for x = 0).
template <typename T> inline T integer_power(T x, T n) {
    if (n < 0) return x == 1 ? 1 : x == T(-1) ? (n & 1 ? -1 : 1) : 0;
    uint64_t r = 1, b = uint64_t(x), e = uint64_t(n);
    for (; e; e >>= 1, b *= b) r = e & 1 ? r * b : r;
    return T(r);
}
