// The lesser of two; NaN if either is.
template <typename T> __device__ inline T minimum(T a, T b) { return a < b || a != a ? a : b; }
