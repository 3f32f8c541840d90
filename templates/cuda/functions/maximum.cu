// The greater of two, 0 above -0 in float; NaN if either is.
template <typename T> __device__ inline T maximum(T a, T b) { return a > b || a != a ? a : b; }
__device__ inline float maximum(float a, float b) { asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b)); return a; }
