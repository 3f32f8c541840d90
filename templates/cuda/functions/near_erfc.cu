// erfc(x) where differences are taken; for results T of 16 bits the nearer one of the fast forms.
template <typename T, typename F> __device__ inline F near_erfc(F x) {
    if constexpr (is_brief<T>) return nearer_erfc(x);
    else return error_complement(x);
}
