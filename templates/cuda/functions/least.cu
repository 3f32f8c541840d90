// The lesser of two, -0 below 0; NaN if either is. In whatever order values are combined, the result is the same.
template <typename T> __device__ inline T least(T a, T b) { return a < b ? a : b; }
__device__ inline float least(float a, float b) { asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b)); return a; }
__device__ inline double least(double a, double b) { return a < b || a != a || (a == b && __double_as_longlong(a) < 0) ? a : b; }
