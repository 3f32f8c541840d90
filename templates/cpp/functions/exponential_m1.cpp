// exp(x) - 1 without branches or calls: 2^k times what is left of x and a polynomial in it (minimax, 2^-26.2 off), |r| <= log(2) / 2, and
// 2^k - 1. k is rounded by adding 1.5 * 2^23; all is halved, so that 2^128 is a number. -0 stays, NaN goes through.
[[maybe_unused]] inline float exponential_m1(float x) {
    const float most = x > 89.0f ? 89.0f : x, within = most < -18.0f ? -18.0f : most;  // beyond: -1 and infinity
    const float shifted = std::fma(within, 1.44269504f, 12582912.0f), k = shifted - 12582912.0f;
    const float r = std::fma(k, -1.42860677e-6f, std::fma(k, -0.693145752f, within));  // log(2) in two parts
    float p = std::fma(r, 1.38825152e-3f, 8.36654712e-3f);
    p = std::fma(r, p, 4.16672007e-2f);
    p = std::fma(r, p, 0.166665434f);
    p = std::fma(r, p, 0.499999982f);
    p = std::fma(r * r, p, r);
    const float half = __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, shifted) << 23) + 0x3f000000);  // 2^(k - 1)
    return std::copysign(2.0f * std::fma(p, half, half - 0.5f), x);
}
[[maybe_unused]] inline double exponential_m1(double x) { return std::expm1(x); }
