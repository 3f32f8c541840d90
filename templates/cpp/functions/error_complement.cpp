// times * erfc(scale * x) without branches or calls, scale and times literals: exp(-u^2) times a quotient of polynomials in u = |scale x|
// (minimax, 2^-27.3 off), reflected where scale x < 0. The exponential is 2^k times that of what is left of -u^2, |r| <= log(2) / 2, which is
// (h + r/2) / (h - r/2) of h = r/2 coth(r/2), a polynomial in r^2 (minimax, 2^-30.8 off); here both have a factor. k is rounded by adding
// 1.5 * 2^23. Dividend and divisor have 2^64 as well, so that denormals are rounded once. Beyond u = 10.1 it is 0. NaN goes through. The
// compiler works out what is double.
[[maybe_unused]] inline float error_complement(float x, float scale = 1.0f, float times = 1.0f) {
    const double c = std::fabs(scale), step = -0.69314718055994531 / (c * c), d = 0x1p64 / times;
    const float high = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, float(step)) & 0xffffff00);  // k times it is exact
    const double part = step / high, s = -c * c * part;
    const float size = std::fabs(x), most = float(10.1 / c), a = lesser(size, most), square = a * a;
    const float shifted = std::fma(square, float(1 / step), 12582912.0f), multiple = std::fma(shifted, -high, 12582912.0f * high);
    const float r = std::fma(square, float(1 / part - 1), std::fma(a, a, multiple));  // s times this is what is left
    float even = std::fma(r * r, float(-2.7659754e-3 * s * s * s), float(0.166666176 * s));
    even = std::fma(r * r, even, float(2 / s));
    float p = std::fma(a, float(0x1p64 * 0.0328849816 * c * c * c * c), float(0x1p64 * 0.229639859 * c * c * c));
    p = std::fma(a, p, float(0x1p64 * 0.732487026 * c * c));
    p = std::fma(a, p, float(0x1p64 * 1.23925283 * c));
    p = std::fma(a, p, 0x1p64f);
    p = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, p) + (__builtin_bit_cast(uint32_t, shifted) << 23));
    float q = std::fma(a, float(0.0582864276 * d * c * c * c * c * c), float(0.40705205 * d * c * c * c * c));
    q = std::fma(a, q, float(1.32701678 * d * c * c * c));
    q = std::fma(a, q, float(2.40406481 * d * c * c));
    q = std::fma(a, q, float(2.36763259 * d * c));
    q = std::fma(size, q, float(d));  // not a: infinity of infinity, NaN of NaN
    const float y = (even + r) * p / ((even - r) * q);
    return (scale < 0 ? x > 0 : x < 0) ? 2.0f * times - y : y;
}
[[maybe_unused]] inline double error_complement(double x, double scale = 1.0, double times = 1.0) { return times * std::erfc(scale * x); }
