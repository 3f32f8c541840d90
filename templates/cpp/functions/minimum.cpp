// The lesser of two; NaN if either is.  Not written as `maximum` is: where both meet, g++ would share their tests and vectorise neither.
template <typename T> inline T minimum(T a, T b) { return a < b ? a : a == a ? b : a; }
