// times * erfc(scale * x), factors literals: exp(-u^2) times a polynomial in t = 1 / (1 + 0.36 u), u = |scale x| (minimax, 2^-24.4
// off), reflected below 0. The compiler works out what is double.
__device__ inline float nearer_erfc(float x, float scale = 1.0f, float times = 1.0f) {
    const double c = fabs(scale), half_log2e = 0.72134752044448170;
    const float t = inverse(__fmaf_rn(fabs(x), float(0.36 * c), 1.0f)), root = power_of_two(x * x * float(-half_log2e * c * c));
    float p = __fmaf_rn(t, 0.057070687f * times, -0.31090868f * times);
    p = __fmaf_rn(p, t, 0.55799079f * times);
    p = __fmaf_rn(p, t, -0.36462641f * times);
    p = __fmaf_rn(p, t, 0.36650845f * times);
    p = __fmaf_rn(p, t, 0.082992293f * times);
    p = __fmaf_rn(p, t, 0.2065819f * times);
    p = __fmaf_rn(p, t, 0.20118792f * times);
    p = __fmaf_rn(p, t, 0.20320301f * times);
    const float y = p * t * (root * root);
    return (scale < 0 ? x > 0 : x < 0) ? 2.0f * times - y : y;
}
