// The root of x^2 + y^2; the vector library's hypot misses (inf, NaN), which is inf.
template <typename F> inline F hypotenuse(F x, F y) {
    F h = std::hypot(x, y);
    return (std::fabs(x) == INFINITY) | (std::fabs(y) == INFINITY) ? F(INFINITY) : h;
}
