// The square root by the hardware.
__device__ inline float fast_sqrt(float x) { asm("sqrt.approx.f32 %0, %0;" : "+f"(x)); return x; }
