// times * erfc(scale * x), factors literals, where differences are taken; for results T of 16 bits the nearer one of the fast forms.
template <typename T, typename F> __device__ inline F near_erfc(F x, F scale = F(1), F times = F(1)) {
    if constexpr (is_brief<T>) return nearer_erfc(x, scale, times);
    else return error_complement(x, scale, times);
}
