// 2^x as the square of 2^(x / 2), which has denormals.
__device__ inline float fast_exp2(float x) {
    const float root = power_of_two(x * 0.5f);
    return root * root;
}
