// The derivative of sigmoid; for results T of 16 bits with the fast exponential.
template <typename T, typename F> inline F brief_sigmoid_slope(F x) {
    if constexpr (is_brief<T>) {
        const F e = fast_exp(-std::fabs(x)), s = F(1) + e;
        return e / (s * s);
    } else {
        return sigmoid_slope(x);
    }
}
