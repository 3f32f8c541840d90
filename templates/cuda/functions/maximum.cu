// The greater of two; NaN if either is.
template <typename T> __device__ inline T maximum(T a, T b) { return a > b || a != a ? a : b; }
