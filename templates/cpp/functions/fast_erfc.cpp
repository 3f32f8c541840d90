// times * erfc(scale * x), scale and times literals, but for the rounding of x^2 2^-19.5 of the value off: as the nearer form, but of the
// exponential's h only what is of degree 1 in r^2 (minimax, 2^-20.1 off).
inline float fast_erfc(float x, float scale = 1.0f, float times = 1.0f) {
    const double c = std::fabs(scale), s = -c * c, d = 0x1p64 / times;
    const float size = std::fabs(x), last = float(10.1 / c);
    const uint32_t own = __builtin_bit_cast(uint32_t, size), most = __builtin_bit_cast(uint32_t, last);
    const float a = __builtin_bit_cast(float, own < most ? own : most), square = a * a;
    const float shifted = std::fma(square, float(1.44269504 * s), 12582976.0f), k = shifted - 12582976.0f;
    const float r = std::fma(k, float(-0.69314718055994531 / s), square);  // s times this is what is left
    const float even = std::fma(r * r, float(0.166377015 * s), float(2 / s)), below = even - r;
    float e = even + r;
    e = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, e) + (__builtin_bit_cast(uint32_t, shifted) << 23));
    const float p = std::fma(a, std::fma(a, float(0.0970322873 * c * c * c), float(0.479901527 * c * c)), float(1.02599116 * c));
    float q = std::fma(a, float(0.172004298 * d * c * c * c * c), float(0.850049272 * d * c * c * c));
    q = std::fma(a, std::fma(a, q, float(1.91112584 * d * c * c)), float(2.15434263 * d * c));
    q = std::fma(size, q, float(d));  // not a: infinity of infinity, NaN of NaN
    const float y = e * std::fma(a, p, 0.999999604f) / (below * q);
    return (scale < 0 ? x > 0 : x < 0) ? 2.0f * times - y : y;
}
