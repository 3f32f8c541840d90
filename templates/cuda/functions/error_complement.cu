// times * erfc(scale * x), factors literals, no branch: exp(-u^2), with the roundings of u^2 and t made good, times a polynomial
// in t = 1 / (1 + 0.42 u), u = |scale x| (minimax, 2^-24.5 off), reflected below 0.  Beyond u = 10.1 it is 0.
__device__ inline double error_complement(double x, double scale = 1.0, double times = 1.0) { return times * erfc(scale * x); }
__device__ inline float error_complement(float x, float scale = 1.0f, float times = 1.0f) {
    x *= scale;
    const float a = least(fabs(x), 10.1f), d = __fmaf_rn(a, 0.42f, 1.0f), t = inverse(d);
    const float off = __fmaf_rn(-t, __fmaf_rn(a, 0.42f, 1.0f - d), __fmaf_rn(-d, t, 1.0f));  // of t, relatively
    const float s = a * a, u = s * -1.442695f;
    float e, rest = __fmaf_rn(u, 1.9046542e-9f, __fmaf_rn(-a, a, s));  // exp(-a^2) = 2^u exp(rest); log(2) in two parts
    rest += __fmaf_rn(u, -0.6931472f, -s);
    asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(u));
    float p = __fmaf_rn(t, 0.07838932f * times, -0.35695073f * times);
    p = __fmaf_rn(p, t, 0.51032887f * times);
    p = __fmaf_rn(p, t, -0.20320648f * times);
    p = __fmaf_rn(p, t, 0.31421021f * times);
    p = __fmaf_rn(p, t, 0.1773042f * times);
    p = __fmaf_rn(p, t, 0.243572f * times);
    p = __fmaf_rn(p, t, 0.23632671f * times);
    p = __fmaf_rn(p, t, 2.5943588e-5f * times);
    float y = e * p;
    y = __fmaf_rn(y, __fmaf_rn(off, __fmaf_rn(t, 1.69f, 1.0f), rest), y);  // d log(p) / d log(t) is about 1 + 1.69 t
    return x < 0 ? 2.0f * times - y : y;
}
