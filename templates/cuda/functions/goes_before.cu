// Whether value a at place i goes before value b at place j: NaN first, then the greater (or the LEAST), then the lower place.
template <bool LEAST, typename T, typename I> __device__ inline bool goes_before(T a, I i, T b, I j) {
    const bool better = LEAST ? a < b : a > b, alike = a == b || (a != a && b != b);
    return better || (a != a && b == b) || (alike && i < j);
}
