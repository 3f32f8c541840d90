// 1 / (1 + exp(-x)), without branches or calls: exp(-x) is 2^k times that of what is left of -x, |r| <= log(2) / 2, which is (h + r/2) /
// (h - r/2) of h = r/2 coth(r/2), a polynomial in r^2 (minimax, 2^-30.8 off); here h and r/2 have a factor of 2, and both terms of the sum
// one of 2^-32, so that no exponential overflows where the value is denormal. k is rounded by adding 1.5 * 2^23 - 32. The dividend
// is 0 where the value is, for processors take long over what underflows. NaN goes through.
[[maybe_unused]] inline float sigmoid(float x) {
    const float most = x > 40.0f ? 40.0f : x, within = most < -104.0f ? -104.0f : most;  // beyond: 1 and 0
    const float shifted = std::fma(within, -1.44269504f, 12582880.0f), k = shifted - 12582880.0f;
    const float r = std::fma(k, -1.42860677e-6f, std::fma(k, -0.693145752f, -within));  // log(2) in two parts
    const float even = std::fma(r * r, std::fma(r * r, -2.7659754e-3f, 0.166666176f), 2.0f), above = even + r;
    const float e = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, above) + (__builtin_bit_cast(uint32_t, shifted) << 23));
    const float below = 0x1p-32f * (even - r);
    return (x < -103.98f ? 0.0f : below) / (below + e);
}
// The same, exact in the tails: exp is taken of -|x| only.
[[maybe_unused]] inline double sigmoid(double x) {
    const double e = std::exp(-std::fabs(x)), s = 1.0 + e;
    return (x < 0 ? e : 1.0) / s;
}
