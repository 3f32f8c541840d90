// The derivative of sigmoid, exp(-|x|) / (1 + exp(-|x|))^2.
template <typename F> inline F sigmoid_slope(F x) {
    const F e = exponential(-std::fabs(x)), s = F(1) + e;
    return e / (s * s);
}
