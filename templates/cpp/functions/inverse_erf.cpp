// The inverse of erf, in double: a first guess, then steps of Halley's method on erf (near 1 on erfc):
// two leave 8 ulp of f64 next to 1.
template <typename F> inline F inverse_erf(F value) {
    const double x = value, a = std::fabs(x), q = 1 - a;
    const double l = std::log(q * (1 + a)), t = 4.330746750799873 + l / 2;  // 2 / (0.147 pi)
    const double guess = std::sqrt(std::sqrt(t * t - l / 0.147) - t);
    double z = a < 0.15 ? a * 0.8862269254527580 : guess;
    for (int step = 0; step < (sizeof(F) == 8 ? 3 : 2); step++) {
        double r = a < 0.5 ? std::erf(z) - a : q - std::erfc(z);
        double e = r * 0.8862269254527580 / std::exp(-z * z);
        z -= e / (1 + z * e);
    }
    z = a == 1 ? INFINITY : z;
    return a < 1e-9 ? F(x * 0.8862269254527580) : F(std::copysign(z, x));
}
