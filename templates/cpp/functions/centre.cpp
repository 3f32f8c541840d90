// The mean of n elements with this sum; 0 of none.
template <typename F> inline F centre(F sum, F n) { return n > F(0) ? sum / n : F(0); }
