// The magnitude of an integer; the least wraps.
template <typename T> __device__ inline T absolute(T x) { return x < 0 ? T(0 - u64(x)) : x; }
