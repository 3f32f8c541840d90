// exp(x) without branches or calls: 2^k times a polynomial in what is left of x, |r| <= log(2)/2, k rounded by adding 1.5 * 2^23.
// Two factors make 2^k, so that denormals are rounded once. NaN goes through.
[[maybe_unused]] inline float exponential(float x) {
    const float most = x > 89.0f ? 89.0f : x, within = most < -104.0f ? -104.0f : most;  // beyond: 0 and infinity
    const float shifted = std::fma(within, 1.44269504f, 12582912.0f), k = shifted - 12582912.0f;
    const float r = std::fma(k, -1.42860677e-6f, std::fma(k, -0.693145752f, within));  // log(2) in two parts
    float p = std::fma(r, 1.98756915e-4f, 1.39819995e-3f);
    p = std::fma(r, p, 8.33345191e-3f);
    p = std::fma(r, p, 4.16657959e-2f);
    p = std::fma(r, p, 0.166666655f);
    p = std::fma(r, p, 0.500000012f);
    p = std::fma(r * r, p, r) + 1.0f;
    const int32_t n = __builtin_bit_cast(int32_t, shifted) - 0x4b400000, half = n >> 1;
    return p * __builtin_bit_cast(float, (half + 127) << 23) * __builtin_bit_cast(float, (n - half + 127) << 23);
}
[[maybe_unused]] inline double exponential(double x) { return std::exp(x); }
