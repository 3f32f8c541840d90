// erfc(x), but for the rounding of x^2 2^-20.8 of the value off: exp(-x^2) times a quotient of polynomials in |x| (minimax, 2^-21.2 off),
// reflected below 0. The exponential is 2^k times a polynomial in what is left of -x^2, |r| <= log(2) / 2, k rounded by adding 1.5 * 2^23
// + 64; the divisor has 2^64 as well, so that denormals are rounded once. Beyond 10.1 it is 0. NaN goes through.
inline float nearer_erfc(float x) {
    const float size = std::fabs(x), a = size > 10.1f ? 10.1f : size, s = a * a;
    const float shifted = std::fma(s, -1.44269504f, 12582976.0f), k = shifted - 12582976.0f, r = std::fma(k, -0.693147182f, -s);
    float e = std::fma(r, 8.2903029e-3f, 4.18979935e-2f);
    e = std::fma(r, e, 0.166676372f);
    e = std::fma(r, e, 0.499991477f);
    e = std::fma(r, e, 0.999999702f);
    e = std::fma(r, e, 1.0f);
    e = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, e) + (__builtin_bit_cast(uint32_t, shifted) << 23));
    float p = std::fma(a, 0.0970322873f, 0.479901527f);
    p = std::fma(a, p, 1.02599116f);
    p = std::fma(a, p, 0.999999604f);
    float q = std::fma(a, 0x1p64f * 0.172004298f, 0x1p64f * 0.850049272f);
    q = std::fma(a, q, 0x1p64f * 1.91112584f);
    q = std::fma(a, q, 0x1p64f * 2.15434263f);
    q = std::fma(a, q, 0x1p64f);
    const float y = e * p / q;
    return x < 0 ? 2.0f - y : y;
}
