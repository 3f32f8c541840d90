// log(x) by the hardware, about 1 a polynomial in x - 1, which is exact there.
__device__ inline float fast_log(float x) {
    const float near = log_about_1(x - 1.0f), far = binary_logarithm(x) * 0.69314718f;
    return x > 0.7f && x < 1.42f ? near : far;
}
