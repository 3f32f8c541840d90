// erfc(x) without branches or calls: exp(-x^2) times a quotient of polynomials in |x| (minimax, 2^-27.3 off), reflected below 0. The
// exponential is 2^k times a polynomial in what is left of -x^2, |r| <= log(2) / 2, k rounded by adding 1.5 * 2^23 + 64; the divisor has 2^64
// as well, so that denormals are rounded once. Beyond 10.1 it is 0. NaN goes through.
[[maybe_unused]] inline float error_complement(float x) {
    const float size = std::fabs(x), a = size > 10.1f ? 10.1f : size;
    const float shifted = std::fma(a * a, -1.44269504f, 12582976.0f), k = shifted - 12582976.0f;
    const float r = std::fma(k, -1.42860677e-6f, std::fma(-a, a, k * -0.693145752f));  // log(2) in two parts, the first times k exact
    float e = std::fma(r, 1.38145941e-3f, 8.36871937e-3f);
    e = std::fma(r, e, 4.16683890e-2f);
    e = std::fma(r, e, 0.166665211f);
    e = std::fma(r, e, 0.49999994f);
    e = std::fma(r, e, 1.0f);
    e = std::fma(r, e, 1.0f);
    e = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, e) + (__builtin_bit_cast(uint32_t, shifted) << 23));
    float p = std::fma(a, 0.0328849816f, 0.229639859f);
    p = std::fma(a, p, 0.732487026f);
    p = std::fma(a, p, 1.23925283f);
    p = std::fma(a, p, 1.0f);
    float q = std::fma(a, 0x1p64f * 0.0582864276f, 0x1p64f * 0.40705205f);
    q = std::fma(a, q, 0x1p64f * 1.32701678f);
    q = std::fma(a, q, 0x1p64f * 2.40406481f);
    q = std::fma(a, q, 0x1p64f * 2.36763259f);
    q = std::fma(a, q, 0x1p64f);
    const float y = e * p / q;
    return x < 0 ? 2.0f - y : y;
}
[[maybe_unused]] inline double error_complement(double x) { return std::erfc(x); }
