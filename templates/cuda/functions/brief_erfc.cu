// erfc(x); for results T of 16 bits the fast form.
template <typename T, typename F> __device__ inline F brief_erfc(F x) {
    if constexpr (is_brief<T>) return fast_erfc(x);
    else return error_complement(x);
}
