// The greater of two; NaN if either is.
template <typename T> inline T maximum(T a, T b) { return a > b || a != a ? a : b; }
