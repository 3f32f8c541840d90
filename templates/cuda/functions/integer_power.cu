// a^n by squaring, wrapping; a negative n gives the integer part of 1 / a^-n (0 for a = 0).
template <typename I> __device__ inline I integer_power(I a, i64 n) {
    if (n < 0) return a == 1 ? I(1) : a == I(-1) ? I(n % 2 != 0 ? -1 : 1) : I(0);
    u64 base = u64(a), r = 1;
    for (u64 k = u64(n); k != 0; k >>= 1) {
        if (k & 1) r *= base;
        base *= base;
    }
    return I(r);
}
