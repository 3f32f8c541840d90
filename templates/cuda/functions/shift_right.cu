// a >> n; the sign alone (0 or -1) where n is negative or reaches the width.
__device__ inline u8 shift_right(u8 a, u8 n) { return n < 8 ? u8(opaque(a) >> n) : u8(0); }
template <typename I> __device__ inline I shift_right(I a, I n) {
    return u64(n) < 8 * sizeof(I) ? I(sizeof(I) < 4 ? opaque(int(a)) >> n : a >> n) : a < 0 ? I(-1) : I(0);
}
