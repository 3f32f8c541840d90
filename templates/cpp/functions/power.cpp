// x to the power y; the vector library's pow misses NaN^0 and 1^NaN, which are 1, and g++ takes x^0.5 for a square root.
template <typename F> inline F power(F x, F y) {
    F p = std::pow(x, y);
    p = (y == F(0.5)) & ((x == 0) | (x == -F(INFINITY))) ? std::fabs(x) : p;
    return ((y == 0) | (x == 1)) ? F(1) : p;
}
