// A number by which many x are divided, of whose quotients numbers of 8 bits are made. x / y is x * (1 / y), with 1 / y as a sum of two parts,
// both on one side of 0, and y brought near 1, so that nothing overflows on the way: exact where the quotient, or half way to the next number,
// has up to nine digits and x those of T, 16 bits; for other x by one more step, which makes it so of all normal numbers.
template <typename T> struct Divisor {
    float scale, near, high, low, once;
    bool plain = false;

    __device__ explicit Divisor(float y) {
        const int exponent = __float_as_uint(y) >> 23 & 0xff;
        scale = __uint_as_float(unsigned(exponent < 254 ? 254 - exponent : 1) << 23);
        const float divisor = y * scale, about = inverse(divisor);
        const float below = __uint_as_float(__float_as_uint(about) - 2), above = __uint_as_float(__float_as_uint(about) + 1);
        const float rest = __fmaf_rn(-divisor, below, 1.0f) * above, nearer = __fmaf_rn(__fmaf_rn(-divisor, about, 1.0f), about, about);
        const bool normal = (__float_as_uint(about) & 0x7fffffff) - 1 < 0x7f7fffff;  // neither 0, infinite, nor NaN
        near = normal ? divisor : 0.0f;
        high = normal ? below : about;
        low = normal ? rest : about;
        once = normal ? nearer : about;
    }
};
template <typename T> __device__ inline float operator/(float x, const Divisor<T>& y) {
    if (is_brief<T> && y.plain) return __fmaf_rn(x, y.high, x * y.low);
    const float scaled = x * y.scale, quotient = __fmaf_rn(scaled, y.high, scaled * y.low);
    if (is_brief<T>) return quotient;
    const float nearer = __fmaf_rn(__fmaf_rn(-quotient, y.near, scaled), y.once, quotient);
    return fabsf(quotient) < infinity() ? copysignf(nearer, quotient) : quotient;  // a step from -0 is 0
}
template <typename T> __device__ inline Divisor<T> divisor(float y) { return Divisor<T>(y); }
template <typename T> __device__ inline double divisor(double y) { return y; }
