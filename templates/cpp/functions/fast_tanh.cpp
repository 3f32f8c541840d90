// tanh(x), 2^-18.5 of the value off: from 0.4 on 1 - 2 / (1 + exp(2 |x|)), below an odd polynomial (minimax, 2^-23 off). The exponential is
// 2^k times a polynomial in what is left of |x|, |r| <= log(2) / 4, k rounded by adding 1.5 * 2^23. NaN goes through.
inline float fast_tanh(float x) {
    const float size = std::fabs(x), a = size > 10.0f ? 10.0f : size, s = a * a;
    const float shifted = std::fma(a, 2.88539008f, 12582912.0f), k = shifted - 12582912.0f, r = std::fma(k, -0.346573591f, a);
    float p = std::fma(r, 0.664220870f, 1.34300053f);
    p = std::fma(r, p, 2.00012064f);
    p = std::fma(r, p, 1.99993360f);
    p = std::fma(r, p, 1.0f);
    const float e = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, p) + (__builtin_bit_cast(uint32_t, shifted) << 23));
    const float far = 1.0f - 2.0f / (1.0f + e);
    float q = std::fma(s, -0.04779418f, 0.13277628f);
    q = std::fma(q, s, -0.33331882f);
    q = std::fma(q, s, 1.0f);
    return a < 0.4f ? x * q : std::copysign(far, x);
}
