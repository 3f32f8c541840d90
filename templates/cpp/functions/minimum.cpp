// The lesser of two; NaN if either is.
template <typename T> inline T minimum(T a, T b) {
    const T lesser = a < b ? a : b;
    return a != a ? a : lesser;
}
