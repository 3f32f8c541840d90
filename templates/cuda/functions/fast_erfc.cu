// times * erfc(scale * x), factors literals: exp(-u^2) times a polynomial in t = 1 / (1 + 0.44 u), u = |scale x| (minimax, 2^-17.5 off),
// reflected below 0. The exponential is 2^64 too large, which the polynomial takes back: denormals are those of the product.
__device__ inline float fast_erfc(float x, float scale = 1.0f, float times = 1.0f) {
    const double c = fabs(scale), log2e = 1.4426950408889634;  // for the compiler to work out
    const float by = times * 0x1p-64f, t = inverse(__fmaf_rn(fabs(x), float(0.44 * c), 1.0f));
    const float e = power_of_two(__fmaf_rn(x * x, float(-log2e * c * c), 64.0f));
    float p = __fmaf_rn(t, -0.14610618f * by, 0.35065392f * by);
    p = __fmaf_rn(p, t, 0.040729534f * by);
    p = __fmaf_rn(p, t, 0.26358718f * by);
    p = __fmaf_rn(p, t, 0.24256932f * by);
    p = __fmaf_rn(p, t, 0.24856104f * by);
    const float y = p * t * e;
    return (scale < 0 ? x > 0 : x < 0) ? 2.0f * times - y : y;
}
