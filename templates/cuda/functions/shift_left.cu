// a << n; 0 where n is negative or reaches the width.
template <typename I> __device__ inline I shift_left(I a, I n) {
    return u64(n) < 8 * sizeof(I) ? I(u64(a) << u64(n)) : I(0);
}
