// The derivative of sigmoid; for results T of 16 bits the fast form.
template <typename T, typename F> __device__ inline F brief_sigmoid_slope(F x) {
    if constexpr (is_brief<T>) return fast_sigmoid_slope(x);
    else return sigmoid_slope(x);
}
