// A float by which many x are divided: 1 / y as a sum of two parts, both on one side of 0, and y brought below 1, so that nothing overflows
// before a quotient does. x / y is then a product and a sum, 2^-42 of its value off before it is rounded.
struct SplitDivisor {
    float scale, high, low;

    __device__ explicit SplitDivisor(float y) {
        const int exponent = __float_as_uint(y) >> 23 & 0xff;
        scale = __uint_as_float(unsigned(exponent < 252 ? 253 - exponent : 1) << 23);
        const float near = y * scale, about = inverse(near);
        const float below = __uint_as_float(__float_as_uint(about) - 2), above = __uint_as_float(__float_as_uint(about) + 1);
        const bool normal = (__float_as_uint(about) & 0x7fffffff) - 1 < 0x7f7fffff;  // neither 0, infinite, nor NaN
        high = normal ? below : about;
        low = normal ? __fmaf_rn(-near, below, 1.0f) * above : about;
    }
};
__device__ inline float operator/(float x, const SplitDivisor& y) {
    const float scaled = x * y.scale;
    return __fmaf_rn(scaled, y.high, scaled * y.low);
}
template <typename T> __device__ inline float brief_div(float x, const SplitDivisor& y) { return x / y; }
// A divisor of 16-bit results. Of one that is `plain` the inverse is a normal number, and a quotient one product, 2 units in the last place of
// a float off; others are scaled, as `fast_div` does.
struct BriefDivisor {
    float y, over;
    bool plain;

    __device__ explicit BriefDivisor(float y) : y(y), over(inverse(y)), plain(0x1p-126f <= fabsf(y) && fabsf(y) <= 0x1p125f) {}
};
template <typename T> __device__ inline float brief_div(float x, const BriefDivisor& y) { return y.plain ? x * y.over : fast_div(x, y.y); }
// What quotients of which results T are made are divided by: where blocks that wait for one another share a row. Else, and in f64, a number:
// the parts take registers, and few threads hide what divisions take where all have a row in theirs.
template <typename T, bool WAIT> __device__ inline auto split_divisor(float y) {
    if constexpr (!WAIT) return y;
    else if constexpr (is_brief<T>) return BriefDivisor(y);
    else return SplitDivisor(y);
}
template <typename T, bool WAIT> __device__ inline double split_divisor(double y) { return y; }
// What `use` makes by a divisor: by one that is known to be plain, or known not to be.
template <typename Y, typename Use> __device__ inline auto plainly(const Y& y, Use use) { return use(y); }
template <typename Use> __device__ inline auto plainly(BriefDivisor y, Use use) {
    if (y.plain) {
        y.plain = true;
        return use(y);
    }
    y.plain = false;
    return use(y);
}
