// 1 - tanh(x)^2; for results T of 16 bits from exp(-2 |x|), of which no digit cancels: (2 exp(-|x|) / (1 + exp(-2 |x|)))^2.
template <typename T, typename F> __device__ inline F tanh_slope(F x) {
    if constexpr (is_brief<T>) {
        const F half = power_of_two(__fmaf_rn(fabs(x), -1.44269504f, -1.0f)), root = half * inverse(__fmaf_rn(half, half, 0.25f));
        return root * root;
    } else {
        const F y = hyperbolic_tangent(x);
        return F(1) - y * y;
    }
}
