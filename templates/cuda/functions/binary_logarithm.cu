// log2(x) by the hardware, 2^-22 off, of numbers beyond 1/2 and 2 relatively.
__device__ inline float binary_logarithm(float x) { asm("lg2.approx.f32 %0, %0;" : "+f"(x)); return x; }
