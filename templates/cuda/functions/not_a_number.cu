// NaN, without a header.
__device__ inline float not_a_number() { return __uint_as_float(0x7fc00000); }
