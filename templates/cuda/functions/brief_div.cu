// x / y; for results T of 16 bits the fast form.
template <typename T, typename F> __device__ inline F brief_div(F x, F y) {
    if constexpr (is_brief<T>) return fast_div(x, y);
    else return x / y;
}
