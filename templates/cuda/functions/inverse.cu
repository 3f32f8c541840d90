// 1 / x by the hardware, one unit in the last place of a float off; 0 above 2^126.
__device__ inline float inverse(float x) { asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x)); return x; }
