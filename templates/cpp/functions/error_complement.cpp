// erfc(x) without branches or calls: exp(-x^2), with the roundings of x^2 and t made good, times a polynomial in t = 1 / (1 + 0.36 |x|)
// (minimax, 2^-24.4 off), reflected below 0.  4^k times a polynomial in what is left of -x^2, |r| <= log(2), k rounded by adding
// 1.5 * 2^23; its two factors round what is denormal once.  Beyond 10.1 it is 0.  NaN goes through.
[[maybe_unused]] inline float error_complement(float x) {
    const float size = std::fabs(x), a = size > 10.1f ? 10.1f : size, d = std::fma(a, 0.36f, 1.0f), t = 1.0f / d;
    const float off = std::fma(-t, std::fma(a, 0.36f, 1.0f - d), std::fma(-d, t, 1.0f));  // of t, relatively
    const float s = a * a, low = std::fma(a, a, -s);
    const float shifted = std::fma(s, -0.72134752f, 12582912.0f), k = shifted - 12582912.0f;
    float r = std::fma(k, -2.85721354e-6f, std::fma(k, -1.3862915f, -s)) - low;  // log(4) in two parts
    r = std::fma(off, std::fma(t, 2.1f, 1.0f), r);  // d log(p t) / d log(t) is about 1 + 2.1 t
    float e = std::fma(r, 1.96108376e-4f, 1.41050923e-3f);
    e = std::fma(r, e, 8.33612029e-3f);
    e = std::fma(r, e, 4.16612364e-2f);
    e = std::fma(r, e, 0.166666135f);
    e = std::fma(r, e, 0.500000358f);
    e = std::fma(r * r, e, r) + 1.0f;
    float p = std::fma(t, 0.057070687f, -0.31090868f);
    p = std::fma(p, t, 0.55799079f);
    p = std::fma(p, t, -0.36462641f);
    p = std::fma(p, t, 0.36650845f);
    p = std::fma(p, t, 0.082992293f);
    p = std::fma(p, t, 0.2065819f);
    p = std::fma(p, t, 0.20118792f);
    p = std::fma(p, t, 0.20320301f);
    const uint32_t power = __builtin_bit_cast(uint32_t, shifted) << 23;  // 2^k, as what is added to a float's bits
    const float first = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, e) + power);
    const float y = first * (p * t) * __builtin_bit_cast(float, power + 0x3f800000);
    return x < 0 ? 2.0f - y : y;
}
[[maybe_unused]] inline double error_complement(double x) { return std::erfc(x); }
