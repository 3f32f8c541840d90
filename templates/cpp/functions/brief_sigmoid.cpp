// 1 / (1 + exp(-x)); for results T of 16 bits the fast form.
template <typename T, typename F> inline F brief_sigmoid(F x) {
    if constexpr (is_brief<T>) return fast_sigmoid(x);
    else return sigmoid(x);
}
