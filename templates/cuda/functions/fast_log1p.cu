// log(1 + x) by the hardware, about 0 a polynomial.
__device__ inline float fast_log1p(float x) {
    const float near = log_about_1(x), far = binary_logarithm(1.0f + x) * 0.69314718f;
    return x > -0.3f && x < 0.42f ? near : far;
}
