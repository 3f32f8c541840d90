// tanh(x); for 16 bits 1 - 2 / (1 + exp(2 |x|)), near 0 the beginning of its series.
template <typename T, typename F> __device__ inline F brief_tanh(F x) {
    if constexpr (is_brief<T>) {
        const float a = fabs(x), far = __fmaf_rn(-2.0f, inverse(1.0f + power_of_two(a * 2.8853901f)), 1.0f);
        return a < 0.05f ? x * __fmaf_rn(x * x, -0.33333333f, 1.0f) : copysign(far, x);
    } else {
        return hyperbolic_tangent(x);
    }
}
