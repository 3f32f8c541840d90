// log(1 + x) without branches or calls: k log(2) and the logarithm of (1 + x) 2^-k, which lies from 2/3 to 4/3 and is 1 and what is left. What
// is taken from a float's bits is taken from its exponent. -inf of -1, NaN of what is below, and of -0 it is -0.
[[maybe_unused]] inline float logarithm_1p(float x) {
    const uint32_t above = __builtin_bit_cast(uint32_t, x + 1.0f) - 0x3f2aaaab, power = above & 0xff800000;  // 2/3
    const float k = float(-(int32_t(above) >> 23)), part = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, x) - power);
    const float left = part - std::fma(__builtin_bit_cast(float, 0x40800000 - power), -0.25f, 1.0f);
    const float y = std::fma(-k, 0.693147181f, log_about_1(left));
    const float other = x < -1.0f ? NAN : x == -1.0f ? -INFINITY : x;
    return x > -1.0f && x < INFINITY ? y : other;
}
[[maybe_unused]] inline double logarithm_1p(double x) { return std::log1p(x); }
