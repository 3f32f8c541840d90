// To an integer of 8 bits, as saturate does, of a whole number or NaN.
template <typename I> __device__ inline I saturate_whole(float x) {
    const float low = I(-1) < I(0) ? -128.0f : 0.0f;
    return last_bits<I>(x == x ? fminf(fmaxf(x, low), low + 255.0f) : x);
}
template <typename I> __device__ inline I saturate_whole(double x) { return saturate<I>(x); }
