// log(1 + x), as `logarithm` makes it: k times log(2), and the logarithm of 1 + f = (1 + x) 2^-k, which lies from 3/4 to 3/2, so that f is
// not rounded about x = 2^1/2 - 1 (minimax, 0.39 units in the last place off, 1.3 in all).
__device__ inline double logarithm_1p(double x) { return log1p(x); }
__device__ inline float logarithm_1p(float x) {
    const float whole = flushed_logarithm(__fmaf_rn(x, 0.94280904f, 0.94280904f)) + 12582912.0f;  // (1 + x) 2^1/2 / (3/2)
    const unsigned power = __float_as_uint(whole) << 23;
    const float other = __fmaf_rn(__uint_as_float(0x40800000 - power), -0.25f, 1.0f);  // 1 - 2^-k
    const float f = __uint_as_float(__float_as_uint(x) - power) - other;
    float p = __fmaf_rn(f, 0.0543154925f, -0.120734267f);  // the first above 0: infinity stays that
    p = __fmaf_rn(p, f, 0.14972578f);
    p = __fmaf_rn(p, f, -0.168172821f);
    p = __fmaf_rn(p, f, 0.19977589f);
    p = __fmaf_rn(p, f, -0.249938995f);
    p = __fmaf_rn(p, f, 0.333335489f);
    p = __fmaf_rn(p, f, -0.500000477f);
    return __fmaf_rn(12582912.0f - whole, -0.693147181f, __fmaf_rn(p * f, f, f));  // of -0 it is -0
}
