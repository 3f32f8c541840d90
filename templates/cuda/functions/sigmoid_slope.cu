// The derivative of sigmoid, exp(-|x|) / (1 + exp(-|x|))^2.
template <typename F> __device__ inline F sigmoid_slope(F x) {
    const F e = exp(-fabs(x)), d = F(1) + e;
    return e / (d * d);
}
