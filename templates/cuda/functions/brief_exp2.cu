// 2^x; for results T of 16 bits the fast form.
template <typename T, typename F> __device__ inline F brief_exp2(F x) {
    if constexpr (is_brief<T>) return fast_exp2(x);
    else return exp2(x);
}
