// The derivative of sigmoid, exp(-|x|) / (1 + exp(-|x|))^2, of which it shares both.
template <typename F> __device__ inline F sigmoid_slope(F x) {
    const F e = exp(-fabs(x)), d = F(1) + e;
    if constexpr (sizeof(F) == 4) {  // as sigmoid inverts it
        float r = inverse(d);
        r = __fmaf_rn(r, __fmaf_rn(-d, r, 1.0f), r);
        return e * r * r;
    } else {
        return e / (d * d);
    }
}
