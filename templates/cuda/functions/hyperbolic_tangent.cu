// tanh(x), without a branch: from 0.62 on 1 - 2 / (1 + exp(2 |x|)), below an odd polynomial (minimax, 2^-28 off).
__device__ inline double hyperbolic_tangent(double x) { return tanh(x); }
__device__ inline float hyperbolic_tangent(float x) {
    const float a = fabs(x), d = 1.0f + power_of_two(a * 2.8853901f), s = x * x;
    float r = inverse(d);
    r = __fmaf_rn(r, __fmaf_rn(-d, r, 1.0f), r);
    float p = __fmaf_rn(s, -0.0057547935f, 0.020682545f);
    p = __fmaf_rn(p, s, -0.053752698f);
    p = __fmaf_rn(p, s, 0.13331594f);
    p = __fmaf_rn(p, s, -0.33333287f);
    return a < 0.62f ? __fmaf_rn(x * s, p, x) : a > 9.1f ? copysign(1.0f, x) : copysign(__fmaf_rn(-2.0f, r, 1.0f), x);
}
