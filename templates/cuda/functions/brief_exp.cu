// exp(x); for 16 bits the square of 2^(x log2(e) / 2), which has denormals.
template <typename T, typename F> __device__ inline F brief_exp(F x) {
    if constexpr (is_brief<T>) {
        const float root = power_of_two(x * 0.72134752f);
        return root * root;
    } else {
        return exp(x);
    }
}
