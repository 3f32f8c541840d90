// The code of x in such a format, rounded away from 0 with the probability that is left of a unit: 32 bits of it, and 32 random ones.
template <int DIGITS, int LEAST, unsigned TOP, unsigned OVER, unsigned NONE, unsigned SIGN, bool SATURATE>
__device__ inline unsigned stochastic_code(float x, unsigned random) {
    const unsigned u = __float_as_uint(x), a = u & 0x7fffffff;
    if constexpr (LEAST == -126 && OVER << (23 - DIGITS) == 0x7f800000 && NONE > OVER && !SATURATE) {  // a float's first bits, and a carry
        const unsigned m = (a >> (23 - DIGITS)) + (unsigned((a << (9 + DIGITS)) + random) < random);
        return (u >> (23 - DIGITS) & SIGN) | (a > 0x7f800000 ? NONE : m);
    }
    const int exponent = a < 0x00800000 ? 1 : int(a >> 23), above = exponent > 127 + LEAST ? exponent - (127 + LEAST) : 0;
    const unsigned significand = (a & 0x7fffff) | (a < 0x00800000 ? 0 : 0x800000);
    const int lost = 23 - DIGITS + (exponent < 127 + LEAST ? 127 + LEAST - exponent : 0);  // of its bits, at least 1
    const unsigned left = lost < 32 ? significand << (32 - lost) : lost < 64 ? significand >> (lost - 32) : 0;
    unsigned m = (unsigned(above) << DIGITS) + (lost < 32 ? significand >> lost : 0) + (unsigned(left + random) < left);
    m = m > TOP || a >= 0x7f800000 ? (SATURATE ? TOP : OVER) : m;
    m = a > 0x7f800000 ? NONE : m;
    const unsigned sign = u >> 31 && (NONE > TOP || a <= 0x7f800000) ? SIGN : 0;  // what stands for NaN may be a number
    return NONE == SIGN && m == 0 ? 0 : sign | m;
}
