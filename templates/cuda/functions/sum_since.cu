// a + b, or b alone where it begins anew.
template <typename F> __device__ inline F sum_since(F begins, F a, F b) { return begins != 0 ? b : a + b; }
