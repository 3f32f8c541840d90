// x / y by way of 1 / y, with both scaled where that would be no normal number.
__device__ inline float fast_div(float x, float y) {
    const float scale = fabs(y) > 0x1p+100f ? 0x1p-50f : fabs(y) < 0x1p-100f ? 0x1p+50f : 1.0f;
    return x * scale * inverse(y * scale);
}
