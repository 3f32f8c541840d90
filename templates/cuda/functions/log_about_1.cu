// log(1 + x) for x from -0.3 to 0.42 (minimax, 2^-22.2 off).
__device__ inline float log_about_1(float x) {
    float p = __fmaf_rn(x, -0.10206996f, 0.16313091f);
    p = __fmaf_rn(p, x, -0.17258743f);
    p = __fmaf_rn(p, x, 0.19893165f);
    p = __fmaf_rn(p, x, -0.24969022f);
    p = __fmaf_rn(p, x, 0.33335035f);
    p = __fmaf_rn(p, x, -0.50000361f);
    return x * __fmaf_rn(p, x, 1.0f);
}
