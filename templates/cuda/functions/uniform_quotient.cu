// x / y, where many x are divided by one y: what follows from that is computed once.
template <typename Y> __device__ inline auto uniform_quotient(float x, const Y& y) {
    if constexpr (sizeof(Y) == 4) return x / split_divisor<float, true>(y);
    else return x / y;
}
__device__ inline double uniform_quotient(double x, double y) { return x / y; }
