// 1 / (1 + exp(-x)), both parts of it times 2^-24: so it has denormals, and neither overflows before it is 0.
__device__ inline float fast_sigmoid(float x) {
    const float e = power_of_two(__fmaf_rn(x, -1.44269504f, -24.0f));
    return inverse(0x1p-24f + e) * 0x1p-24f;
}
