// 1 / (1 + exp(-x)) as 2^-32 / (2^-32 + 2^-32 exp(-x)), 2^-18.3 of the value off: no exponential overflows where the value is denormal. That
// is 2^k times a polynomial in what is left of -x, |r| <= log(2) / 2, k rounded by adding 1.5 * 2^23 - 32. The dividend is 0
// where the value is, for processors take long over what underflows. NaN goes through.
inline float fast_sigmoid(float x) {
    const float most = x > 40.0f ? 40.0f : x, within = most < -104.0f ? -104.0f : most;  // beyond: 1 and 0
    const float shifted = std::fma(within, -1.44269504f, 12582880.0f), k = shifted - 12582880.0f, r = std::fma(k, -0.693147182f, -within);
    float p = std::fma(r, 4.15138043e-2f, 0.167875066f);
    p = std::fma(r, p, 0.500030160f);
    p = std::fma(r, p, 0.999966800f);
    p = std::fma(r, p, 1.0f);
    const float e = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, p) + (__builtin_bit_cast(uint32_t, shifted) << 23));
    return (x < -103.98f ? 0.0f : 0x1p-32f) / (0x1p-32f + e);
}
