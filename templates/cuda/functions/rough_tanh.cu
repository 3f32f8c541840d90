// tanh(x); for a bf16 by the hardware, 2^-10.9 of the value off.
template <typename T, typename F> __device__ inline F rough_tanh(F x) {
    if constexpr (is_rough<T>) {
        asm("tanh.approx.f32 %0, %0;" : "+f"(x));
        return x;
    } else {
        return brief_tanh<T>(x);
    }
}
