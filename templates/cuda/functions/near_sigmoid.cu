// 1 / (1 + exp(-x)) where differences are taken, and beside that of -x; for results T of 16 bits the nearer one of the fast forms.
template <typename T, typename F> __device__ inline F near_sigmoid(F x) {
    if constexpr (is_brief<T>) return nearer_sigmoid(x);
    else return sigmoid(x);
}
