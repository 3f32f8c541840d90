// To an integer of fewer than 32 bits, of a whole number that it has, or NaN, as 0.
template <typename I, typename F> inline I last_bits(F x) { return I(int32_t(x == x ? x : F(0))); }
