// erfc(x), without a branch: exp(-x^2), with the roundings of x^2 and t made good, times a polynomial in t = 1 / (1 + 0.36 |x|)
// (minimax, 2^-24.4 off), reflected below 0.  Beyond 10.1 it is 0.
__device__ inline double error_complement(double x) { return erfc(x); }
__device__ inline float error_complement(float x) {
    const float a = least(fabs(x), 10.1f), d = __fmaf_rn(a, 0.36f, 1.0f), t = inverse(d);
    const float off = __fmaf_rn(-t, __fmaf_rn(a, 0.36f, 1.0f - d), __fmaf_rn(-d, t, 1.0f));  // of t, relatively
    const float s = a * a, u = s * -1.442695f;
    float e, rest = __fmaf_rn(u, 1.9046542e-9f, __fmaf_rn(-a, a, s));  // exp(-a^2) = 2^u exp(rest); log(2) in two parts
    rest += __fmaf_rn(u, -0.6931472f, -s);
    asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(u));
    float p = __fmaf_rn(t, 0.057070687f, -0.31090868f);
    p = __fmaf_rn(p, t, 0.55799079f);
    p = __fmaf_rn(p, t, -0.36462641f);
    p = __fmaf_rn(p, t, 0.36650845f);
    p = __fmaf_rn(p, t, 0.082992293f);
    p = __fmaf_rn(p, t, 0.2065819f);
    p = __fmaf_rn(p, t, 0.20118792f);
    p = __fmaf_rn(p, t, 0.20320301f);
    float y = e * (p * t);
    y = __fmaf_rn(y, __fmaf_rn(off, __fmaf_rn(t, 2.1f, 1.0f), rest), y);  // d log(p t) / d log(t) is about 1 + 2.1 t
    return x < 0 ? 2.0f - y : y;
}
