// The lesser of two; NaN if either is.
template <typename T> inline T minimum(T a, T b) { return a < b || a != a ? a : b; }
