// exp(a - b) for a maximum a that rises to b; 1 also where both are infinite.
template <typename F> inline F fall(F a, F b) { return a == b ? F(1) : exp_below(a - b); }
