template <typename F> inline F squared(F x) { return x * x; }
