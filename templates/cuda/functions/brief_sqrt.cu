// The square root; for results T of 16 bits the fast form.
template <typename T, typename F> __device__ inline F brief_sqrt(F x) {
    if constexpr (is_brief<T>) return fast_sqrt(x);
    else return sqrt(x);
}
