// exp(x), 2^-17.3 of the value off: 4^k times a polynomial in what is left of x, |r| <= log(2), k rounded by adding 1.5 * 2^23. Two factors
// make 4^k, so that denormals are rounded once; one is 0 where the result is, for processors take long over what underflows. NaN goes through.
inline float fast_exp(float x) {
    const float most = x > 89.0f ? 89.0f : x, within = most < -104.0f ? -104.0f : most;  // beyond: 0 and infinity
    const float shifted = std::fma(within, 0.72134752f, 12582912.0f), k = shifted - 12582912.0f, r = std::fma(k, -1.38629436f, within);
    float p = std::fma(r, 8.1661027e-3f, 4.25807536e-2f);
    p = std::fma(r, p, 0.166818261f);
    p = std::fma(r, p, 0.499869645f);
    p = std::fma(r, p, 0.999981880f);
    p = std::fma(r, p, 1.0f);
    const uint32_t power = __builtin_bit_cast(uint32_t, shifted) << 23;  // 2^k, as what is added to a float's bits
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, p) + power) * (x < -103.98f ? 0.0f : __builtin_bit_cast(float, power + 0x3f800000));
}
