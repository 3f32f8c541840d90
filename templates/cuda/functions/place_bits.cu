// The bits that the places in a row of n elements take, with the one before the first and the one behind the last.
__device__ inline int place_bits(i64 n) { return 64 - __clzll(n + 1); }
