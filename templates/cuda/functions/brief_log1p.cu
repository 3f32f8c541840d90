// log(1 + x); for results T of 16 bits the fast form.
template <typename T, typename F> __device__ inline F brief_log1p(F x) {
    if constexpr (is_brief<T>) return fast_log1p(x);
    else return log1p(x);
}
