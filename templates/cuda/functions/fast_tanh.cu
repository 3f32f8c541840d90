// tanh(x) as 1 - 2 / (1 + exp(2 |x|)), near 0 the beginning of its series.
__device__ inline float fast_tanh(float x) {
    const float a = fabs(x), far = __fmaf_rn(-2.0f, inverse(1.0f + power_of_two(a * 2.8853901f)), 1.0f);
    return a < 0.05f ? x * __fmaf_rn(x * x, -0.33333333f, 1.0f) : copysign(far, x);
}
