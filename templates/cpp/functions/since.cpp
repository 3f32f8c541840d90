// a + b, or b alone where it begins anew.
template <typename F> inline F since(F begins, F a, F b) { return begins != 0 ? b : a + b; }
