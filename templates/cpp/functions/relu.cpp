// x, or 0 below 0; NaN and -0.0 go through.
template <typename T> inline T relu(T x) { return x < 0 ? T(0) : x; }
