// To an integer of 8 bits, of a whole number that it has, or NaN, as 0: added to 2^23 and half of it, it is in the last bits.
template <typename I> __device__ inline I last_bits(float x) { return I(__float_as_uint((x == x ? x : 0.0f) + 12582912.0f)); }
template <typename I> __device__ inline I last_bits(double x) { return saturate<I>(x); }
