// The integer of T that has a rank in the order of all of them.
template <typename T> inline T ranked_integer(uint64_t rank) {
    return T(T(-1) < T(0) ? rank ^ uint64_t(1) << (8 * sizeof(T) - 1) : rank);
}
