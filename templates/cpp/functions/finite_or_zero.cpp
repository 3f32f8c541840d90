// x where it is finite, else 0.
template <typename F> inline F finite_or_zero(F x) { return std::fabs(x) < F(INFINITY) ? x : F(0); }
