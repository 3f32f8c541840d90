// exp(x) - 1 by the hardware, about 0 a polynomial (minimax, 2^-23 off).
__device__ inline float fast_expm1(float x) {
    float p = __fmaf_rn(x, 0.001387575f, 0.0084023934f);
    p = __fmaf_rn(p, x, 0.041668971f);
    p = __fmaf_rn(p, x, 0.16666135f);
    p = __fmaf_rn(p, x, 0.49999983f);
    const float near = x * __fmaf_rn(p, x, 1.0f), far = power_of_two(x * 1.442695f) - 1.0f;
    return fabs(x) < 0.5f ? near : far;
}
