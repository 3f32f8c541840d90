// tanh(x); for results T in bf16 the fast form.
template <typename T, typename F> __device__ inline F rough_tanh(F x) {
    if constexpr (is_rough<T>) return rougher_tanh(x);
    else return brief_tanh<T>(x);
}
