// x to the power y; the vector library's pow misses NaN^0 and 1^NaN, which are 1.
template <typename F> inline F power(F x, F y) {
    F p = std::pow(x, y);
    return (y == 0) | (x == 1) ? F(1) : p;
}
