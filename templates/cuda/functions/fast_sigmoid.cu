// 1 / (1 + exp(-x)) from exp(-|x|), so that small ones keep their digits.
__device__ inline float fast_sigmoid(float x) {
    const float e = fast_exp(-fabs(x)), r = inverse(1.0f + e);
    return x < 0 ? e * r : r;
}
