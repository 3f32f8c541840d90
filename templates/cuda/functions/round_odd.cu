// To float, rounding to odd: rounding that again, to 16 bits, gives what one rounding would.
__device__ inline float round_odd(double x) {
    float r = __double2float_rz(x);
    return double(r) == x ? r : __uint_as_float(__float_as_uint(r) | 1);
}
__device__ inline float round_odd(i64 x) {
    float r = __ll2float_rz(x);
    return __float2ll_rz(r) == x ? r : __uint_as_float(__float_as_uint(r) | 1);
}
