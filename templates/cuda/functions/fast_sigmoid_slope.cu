// The derivative of sigmoid, which shares its exponential and inverse.
__device__ inline float fast_sigmoid_slope(float x) {
    const float e = fast_exp(-fabs(x)), r = inverse(1.0f + e);
    return e * r * r;
}
