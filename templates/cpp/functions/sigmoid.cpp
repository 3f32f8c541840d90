// 1 / (1 + exp(-x)), exact in the tails: exp is taken of -|x| only.
template <typename F> inline F sigmoid(F x) {
    F e = exponential(-std::fabs(x)), s = F(1) + e;
    return (x < 0 ? e : F(1)) / s;
}
