// The logarithmic derivative of gamma: reflection, recurrence up to 10, asymptotic series.
__device__ inline double digamma(double x) {
    if (x == 0) return copysign(1.0 / 0.0, -x);
    double r = 0;
    if (x < 0) {
        if (x == floor(x)) return 0.0 / 0.0;
        double f = x - rint(x);  // exact, and so no digit is lost near a pole
        r = -3.141592653589793 * (cospi(f) / sinpi(f));
        x = 1 - x;
    }
    for (; x < 10; x += 1) r -= 1 / x;
    double z = 1 / (x * x);
    double s = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
    return r + (log(x) - 0.5 / x - s);
}
__device__ inline float digamma(float x) { return float(digamma(double(x))); }
