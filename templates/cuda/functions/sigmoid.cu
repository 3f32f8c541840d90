// 1 / (1 + exp(-x)), without overflow and down to the denormals.
template <typename F> __device__ inline F sigmoid(F x) {
    F e = exp(-fabs(x));
    return (x < 0 ? e : F(1)) / (F(1) + e);
}
