// cos(x) as that of |x|, by its bits: of x itself g++ would join it with sin(x), and take neither of them side by side.
[[maybe_unused]] inline float cosine(float x) {
    return std::cos(__builtin_bit_cast(float, __builtin_bit_cast(uint32_t, x) & 0x7fffffff));
}
[[maybe_unused]] inline double cosine(double x) {
    return std::cos(__builtin_bit_cast(double, __builtin_bit_cast(uint64_t, x) & 0x7fffffffffffffff));
}
