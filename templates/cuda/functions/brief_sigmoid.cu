// 1 / (1 + exp(-x)); for 16 bits from exp(-|x|), so that small ones keep their digits.
template <typename T, typename F> __device__ inline F brief_sigmoid(F x) {
    if constexpr (is_brief<T>) {
        const float e = brief_exp<T>(-fabs(x)), r = inverse(1.0f + e);
        return x < 0 ? e * r : r;
    } else {
        return sigmoid(x);
    }
}
