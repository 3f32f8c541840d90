// The mean of n elements with this sum; 0 of none.
template <typename F> __device__ inline F centre(F sum, F n) { return n > F(0) ? sum / n : F(0); }
