// erfc(x) as exp(-x^2) times a polynomial in t = 1 / (1 + 0.36 |x|) (minimax, 2^-24.4 off), reflected below 0.
__device__ inline float nearer_erfc(float x) {
    const float t = inverse(__fmaf_rn(fabs(x), 0.36f, 1.0f)), root = power_of_two(x * x * -0.72134752f);
    float p = __fmaf_rn(t, 0.057070687f, -0.31090868f);
    p = __fmaf_rn(p, t, 0.55799079f);
    p = __fmaf_rn(p, t, -0.36462641f);
    p = __fmaf_rn(p, t, 0.36650845f);
    p = __fmaf_rn(p, t, 0.082992293f);
    p = __fmaf_rn(p, t, 0.2065819f);
    p = __fmaf_rn(p, t, 0.20118792f);
    p = __fmaf_rn(p, t, 0.20320301f);
    const float y = p * t * (root * root);
    return x < 0 ? 2.0f - y : y;
}
