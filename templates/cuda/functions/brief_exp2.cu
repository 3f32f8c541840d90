// 2^x; for 16 bits the square of 2^(x / 2), which has denormals.
template <typename T, typename F> __device__ inline F brief_exp2(F x) {
    if constexpr (is_brief<T>) {
        const float root = power_of_two(x * 0.5f);
        return root * root;
    } else {
        return exp2(x);
    }
}
