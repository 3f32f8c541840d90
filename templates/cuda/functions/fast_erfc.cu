// erfc(x) as exp(-x^2) times a polynomial in t = 1 / (1 + 0.44 |x|) (minimax, 2^-17.5 off), reflected below 0.
__device__ inline float fast_erfc(float x) {
    const float t = inverse(__fmaf_rn(fabs(x), 0.44f, 1.0f)), root = power_of_two(x * x * -0.72134752f);
    float p = __fmaf_rn(t, -0.14610618f, 0.35065392f);
    p = __fmaf_rn(p, t, 0.040729534f);
    p = __fmaf_rn(p, t, 0.26358718f);
    p = __fmaf_rn(p, t, 0.24256932f);
    p = __fmaf_rn(p, t, 0.24856104f);
    const float y = p * t * root * root;
    return x < 0 ? 2.0f - y : y;
}
