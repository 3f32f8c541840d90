// Of two floats that whose bits are the lesser number: of two of at least 0 the lesser, of two below 0 the greater, of others that of at least
// 0 or NaN. It is one instruction.
inline float lesser(float x, float y) {
    const uint32_t a = __builtin_bit_cast(uint32_t, x), b = __builtin_bit_cast(uint32_t, y);
    return __builtin_bit_cast(float, a < b ? a : b);
}
