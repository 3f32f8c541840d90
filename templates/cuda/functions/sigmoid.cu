// 1 / (1 + exp(-x)), without overflow and down to the denormals.
template <typename F> __device__ inline F sigmoid(F x) {
    const F e = exp(-fabs(x)), d = F(1) + e;
    if constexpr (sizeof(F) == 4) {  // d lies between 1 and 2: one step of Newton's makes its inverse good to half a unit
        float r = inverse(d);
        r = __fmaf_rn(r, __fmaf_rn(-d, r, 1.0f), r);
        return (x < 0 ? e : 1.0f) * r;
    } else {
        return (x < 0 ? e : F(1)) / d;
    }
}
