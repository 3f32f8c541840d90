// x where it is finite, else 0.
template <typename F> __device__ inline F finite_or_zero(F x) { return fabs(x) < F(infinity()) ? x : F(0); }
