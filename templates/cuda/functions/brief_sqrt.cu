// The square root, for 16 bits by the hardware.
template <typename T, typename F> __device__ inline F brief_sqrt(F x) {
    if constexpr (is_brief<T>) {
        asm("sqrt.approx.f32 %0, %0;" : "+f"(x));
        return x;
    } else {
        return sqrt(x);
    }
}
