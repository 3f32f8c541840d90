// exp(x) as the square of 2^(x log2(e) / 2), which has denormals.
__device__ inline float fast_exp(float x) {
    const float root = power_of_two(x * 0.72134752f);
    return root * root;
}
