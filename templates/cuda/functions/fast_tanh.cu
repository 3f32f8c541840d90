// tanh(x) as 1 - 2 / (1 + exp(2 |x|)), near 0 an odd polynomial (minimax, 2^-23 off).
__device__ inline float fast_tanh(float x) {
    const float a = fabs(x), far = __fmaf_rn(-2.0f, inverse(1.0f + power_of_two(a * 2.8853901f)), 1.0f), s = x * x;
    const float p = __fmaf_rn(__fmaf_rn(s, -0.04779418f, 0.13277628f), s, -0.33331882f);
    return a < 0.4f ? x * __fmaf_rn(p, s, 1.0f) : copysign(far, x);
}
