// exp(x) - 1; for results T of 16 bits the fast form.
template <typename T, typename F> __device__ inline F brief_expm1(F x) {
    if constexpr (is_brief<T>) return fast_expm1(x);
    else return expm1(x);
}
