// exp(a - b) for a maximum a that rises to b; exp(a) where b is infinite, so that what is multiplied is about 0.
template <typename F> inline F descent(F a, F b) { return a == b ? F(1) : exp_below(b == F(INFINITY) ? a : a - b); }
