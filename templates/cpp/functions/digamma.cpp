// The logarithmic derivative of gamma, in double: reflected to x > 0, raised to x >= 10, then the asymptotic series.
template <typename F> inline F digamma(F value) {
    constexpr double pi = 3.141592653589793;
    double x = value, sum = 0;
    if (x == 0) return F(std::copysign(INFINITY, -x));
    if (x < 0) {
        double f = x - std::nearbyint(x);  // exact; cot has period 1
        if (f == 0 || x == -INFINITY) return F(NAN);
        sum = -pi / std::tan(pi * f);
        x = 1 - x;
    }
    if (x > 1.2 && x < 1.8 && sum == 0) {  // about its zero, given in two parts, by digits: sum of d / (k + r) (k + x)
        const double d = (x - 1.4616321449683622) - 9.549995429965697e-17;
        constexpr double r = 1.4616321449683622;
        double s = 0;
        for (int k = 0; k < 20; k++) s += 1 / ((k + r) * (k + x));
        // the rest, by Euler and Maclaurin: the difference of two digammas at 20
        const double u = 20 + x, v = 20 + r, iu = 1 / u, iv = 1 / v, w = iu * iv;
        const double p = iu + iv, p2 = iu * iu + iv * iv, p4 = p2 * p2 - 2 * w * w;
        const double tail = std::log1p(d / v) / d + w * (0.5 + p * (1 / 12.0 - p2 / 120 + (p4 + w * w) / 252 - p2 * p4 / 240));
        return F(d == 0 ? 0 : d * (s + tail));
    }
    while (x < 10) sum -= 1 / x, x += 1;
    const double w = 1 / (x * x);
    const double series = w * (1.0 / 12 - w * (1.0 / 120 - w * (1.0 / 252 - w * (1.0 / 240 - w * (1.0 / 132 - w * (691.0 / 32760 - w / 12))))));
    return F(std::log(x) - 0.5 / x - series + sum);
}
