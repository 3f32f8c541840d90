// log(x), no branch: k times log(2), and f + f^2 p(f), the logarithm of 1 + f = x 2^-k, which lies from 2^-1/2 to 2^1/2 (minimax, 0.39 units
// in the last place off, 1.1 in all).  k is the hardware's logarithm, rounded: of 0, infinity and what has no logarithm it is the result,
// whatever is added.  Denormals are scaled.  What is taken from a float's bits is taken from its exponent.
__device__ inline double logarithm(double x) { return log(x); }
__device__ inline float logarithm(float x) {
    const bool small = x < 0x1p-126f;
    x = small ? x * 0x1p24f : x;
    const float whole = flushed_logarithm(x) + 12582912.0f;  // 1.5 * 2^23: k stands in the last bits
    const float f = __uint_as_float(__float_as_uint(x) - (__float_as_uint(whole) << 23)) - 1.0f;
    const float scaled = whole - 12582912.0f, k = small ? scaled - 24.0f : scaled;
    float p = __fmaf_rn(f, 0.0884005725f, -0.143206924f);  // the first above 0: infinity stays that
    p = __fmaf_rn(p, f, 0.148824394f);
    p = __fmaf_rn(p, f, -0.165657401f);
    p = __fmaf_rn(p, f, 0.199652269f);
    p = __fmaf_rn(p, f, -0.25002107f);
    p = __fmaf_rn(p, f, 0.333338797f);
    p = __fmaf_rn(p, f, -0.499999851f);
    return __fmaf_rn(k, 0.693147181f, __fmaf_rn(p * f, f, f));
}
