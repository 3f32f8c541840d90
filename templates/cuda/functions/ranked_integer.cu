// The integer of T that has a rank in the order of all of them.
template <typename T> __device__ inline T ranked_integer(u64 rank) {
    return T(T(-1) < T(0) ? rank ^ u64(1) << (8 * sizeof(T) - 1) : rank);
}
