// Infinity, without a header.
__device__ inline float infinity() { return __uint_as_float(0x7f800000); }
