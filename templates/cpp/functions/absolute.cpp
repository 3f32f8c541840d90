// The magnitude of an integer; the least wraps.
template <typename T> inline T absolute(T x) { return x < 0 ? T(-x) : x; }
