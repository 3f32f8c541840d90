// times * erfc(scale * x), scale and times literals: exp(-u^2) times a quotient of polynomials in u = |scale x| (minimax, 2^-21.2 off),
// reflected below 0. The exponential is 2^k times that of what is left of -u^2, |r| <= log(2) / 2, which is (h + r/2) / (h - r/2) of
// h = r/2 coth(r/2), a polynomial of a DEGREE in r^2 (minimax; of 1 2^-20.1 off, of 2 2^-30.8); here both have a factor. k is rounded by
// adding 1.5 * 2^23 + 64; the divisor has 2^64 as well, so that denormals are rounded once. Beyond u = 10.1, where the lesser of two floats
// is that whose bits are, it is 0. NaN goes through. The compiler works out what is double.
template <int DEGREE> inline float short_erfc(float x, float scale, float times) {
    const double c = std::fabs(scale), s = -c * c, d = 0x1p64 / times;
    const float size = std::fabs(x), last = float(10.1 / c);
    const uint32_t own = __builtin_bit_cast(uint32_t, size), most = __builtin_bit_cast(uint32_t, last);
    const float a = __builtin_bit_cast(float, own < most ? own : most), square = a * a;
    const float shifted = std::fma(square, float(1.44269504 * s), 12582976.0f), k = shifted - 12582976.0f;
    const float r = std::fma(k, float(-0.69314718055994531 / s), square);  // s times this is what is left
    const float above = DEGREE == 2 ? std::fma(r * r, float(-2.7659754e-3 * s * s * s), float(0.166666176 * s)) : float(0.166377015 * s);
    const float even = std::fma(r * r, above, float(2 / s)), below = even - r;
    const float e = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, even + r) + (__builtin_bit_cast(uint32_t, shifted) << 23));
    const float p = std::fma(a, std::fma(a, float(0.0970322873 * c * c * c), float(0.479901527 * c * c)), float(1.02599116 * c));
    float q = std::fma(a, float(0.172004298 * d * c * c * c * c), float(0.850049272 * d * c * c * c));
    q = std::fma(a, std::fma(a, q, float(1.91112584 * d * c * c)), float(2.15434263 * d * c));
    q = std::fma(size, q, float(d));  // not a: infinity of infinity, NaN of NaN
    const float y = e * std::fma(a, p, 0.999999604f) / (below * q);
    return (scale < 0 ? x > 0 : x < 0) ? 2.0f * times - y : y;
}
