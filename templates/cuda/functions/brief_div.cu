// x / y; for 16 bits by way of 1 / y, with both scaled where that would be no normal number.
template <typename T, typename F> __device__ inline F brief_div(F x, F y) {
    if constexpr (is_brief<T>) {
        const float scale = fabs(y) > 0x1p+100f ? 0x1p-50f : fabs(y) < 0x1p-100f ? 0x1p+50f : 1.0f;
        return x * scale * inverse(y * scale);
    } else {
        return x / y;
    }
}
