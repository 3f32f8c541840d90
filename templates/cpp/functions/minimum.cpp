// The lesser of two; NaN if either is.
template <typename T> inline T minimum(T a, T b) {
    const T lesser = b < a ? b : a;
    return b != b ? b : lesser;
}
