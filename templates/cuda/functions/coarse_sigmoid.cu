// 1 / (1 + exp(-x)); for results T in bf16 the fast form, as a term beside one that is not small.
template <typename T, typename F> __device__ inline F coarse_sigmoid(F x) {
    if constexpr (is_rough<T>) return coarser_sigmoid(x);
    else return brief_sigmoid<T>(x);
}
