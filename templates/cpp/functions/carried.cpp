// n * (a - b), for n elements (or what they weigh) about a maximum a that rises to b, 0 where that is infinite; 0 where it stays.
template <typename F> inline F carried(F n, F a, F b) { return a == b ? F(0) : n * (finite_or_zero(a) - finite_or_zero(b)); }
