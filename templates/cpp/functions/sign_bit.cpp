// Whether the sign is set, of -0.0 and NaN too; g++ 12 fails on std::signbit in a vectorised loop.
template <typename F> inline bool sign_bit(F x) { return std::copysign(F(1), x) < 0; }
