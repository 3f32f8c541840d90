// log2(x) by the hardware, as `binary_logarithm`, but of denormals -inf.
__device__ inline float flushed_logarithm(float x) { asm("lg2.approx.ftz.f32 %0, %0;" : "+f"(x)); return x; }
