// The bits that the places in a row of n elements take, with the one before the first and the one behind the last.
inline int place_bits(int64_t n) { return 64 - __builtin_clzll(n + 1); }
