// log(x), or another logarithm of which 2 and e have those, without branches or calls: k times that of 2 and that of x 2^-k, which lies from
// 2/3 to 4/3. What is added to a float's bits adds to its exponent; denormals are scaled for that. -inf of 0, NaN of what is below.
[[maybe_unused]] inline float logarithm(float x, float of_2 = 0.693147181f, float of_e = 1.0f) {
    const uint32_t scaled = __builtin_bit_cast(uint32_t, x * 0x1p23f) - 0x0b800000, own = __builtin_bit_cast(uint32_t, x);
    const uint32_t above = (x < 0x1p-126f ? scaled : own) - 0x3f2aaaab;  // 2/3
    const float k = float(int32_t(above) >> 23);
    const float left = __builtin_bit_cast(float, (above & 0x7fffff) + 0x3f2aaaab) - 1.0f, y = std::fma(k, of_2, log_about_1(left) * of_e);
    const float positive = x < INFINITY ? y : x;
    return x > 0.0f ? positive : x == 0.0f ? -INFINITY : NAN;
}
[[maybe_unused]] inline double logarithm(double x) { return std::log(x); }
