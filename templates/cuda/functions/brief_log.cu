// log(x); for results T of 16 bits the fast form.
template <typename T, typename F> __device__ inline F brief_log(F x) {
    if constexpr (is_brief<T>) return fast_log(x);
    else return log(x);
}
