// 1, 0 or -1; 0 for NaN.
template <typename T> __device__ inline T sign(T x) { return T((x > 0) - (x < T(0))); }
__device__ inline float sign(float x) { return fabsf(x) > 0 ? copysignf(1.0f, x) : 0.0f; }
