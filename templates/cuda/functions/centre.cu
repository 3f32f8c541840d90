// The mean of n elements with this sum; 0 of none. A float's may be two units in the last place off: squares are about it, and move from it.
template <typename F> __device__ inline F centre(F sum, F n) { return n > F(0) ? sum / n : F(0); }
__device__ inline float centre(float sum, float n) { return n > 0.0f ? __fdividef(sum, n) : 0.0f; }
