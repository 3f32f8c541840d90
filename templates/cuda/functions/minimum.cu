// The lesser of two, -0 below 0 in float; NaN if either is.
template <typename T> __device__ inline T minimum(T a, T b) { return a < b || a != a ? a : b; }
__device__ inline float minimum(float a, float b) { asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b)); return a; }
