// The greater of two, 0 above -0; NaN if either is. In whatever order values are combined, the result is the same.
template <typename T> __device__ inline T greatest(T a, T b) { return a > b ? a : b; }
__device__ inline float greatest(float a, float b) { asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b)); return a; }
__device__ inline double greatest(double a, double b) { return a > b || a != a || (a == b && __double_as_longlong(a) >= 0) ? a : b; }
