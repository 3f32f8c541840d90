template <typename F> __device__ inline F squared(F x) { return x * x; }
