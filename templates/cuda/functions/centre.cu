// The mean of n elements with this sum; 0 of none. A float's may be two units in the last place off: squares are about it, and move from it.
// There is no branch in it, so it is worked out once for all elements about it.
template <typename F> __device__ inline F centre(F sum, F n) { return sum / (n > F(0) ? n : F(1)); }
__device__ inline float centre(float sum, float n) { return sum * inverse(fmaxf(n, 1.0f)); }
