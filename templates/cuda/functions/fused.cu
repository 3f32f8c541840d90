// a * b + c; for results of 16 bits rounded once.
template <typename T, typename F> __device__ inline F fused(F a, F b, F c) {
    if constexpr (is_brief<T>) return __fmaf_rn(a, b, c);
    else return a * b + c;
}
