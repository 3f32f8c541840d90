// exp(x) for x <= 0, as a term of a sum whose greatest term is 1.
template <typename F> inline F exp_below(F x) { return exponential(x); }
