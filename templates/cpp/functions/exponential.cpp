// exp(x) without branches or calls: 4^k times a polynomial in what is left of x, |r| <= log(2), k rounded by adding 1.5 * 2^23.
// Two factors make 4^k, so that denormals are rounded once; one is 0 where the result is, for processors take long over what underflows.
// NaN goes through.
[[maybe_unused]] inline float exponential(float x) {
    const float most = x > 89.0f ? 89.0f : x, within = most < -104.0f ? -104.0f : most;  // beyond: 0 and infinity
    const float shifted = std::fma(within, 0.72134752f, 12582912.0f), k = shifted - 12582912.0f;
    const float r = std::fma(k, -2.85721354e-6f, std::fma(k, -1.3862915f, within));  // log(4) in two parts
    float p = std::fma(r, 1.96108376e-4f, 1.41050923e-3f);
    p = std::fma(r, p, 8.33612029e-3f);
    p = std::fma(r, p, 4.16612364e-2f);
    p = std::fma(r, p, 0.166666135f);
    p = std::fma(r, p, 0.500000358f);
    p = std::fma(r * r, p, r) + 1.0f;
    const float power = __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, shifted) << 23) + 0x3f800000);  // 2^k
    return p * power * (x < -103.98f ? 0.0f : power);
}
[[maybe_unused]] inline double exponential(double x) { return std::exp(x); }
