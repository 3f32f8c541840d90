// atan(x): of itself g++ would take sin and cos of it for quotients by a square root, which are 1 and 0 where x is NaN.
template <typename F> inline F arc_tangent(F x) {
    const F y = std::atan(x);
    return x != x ? x : y;
}
