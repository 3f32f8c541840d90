// The code of x in a format of DIGITS binary digits behind the first, whose least normal number is 2^LEAST, to nearest even.
template <int DIGITS, int LEAST, unsigned TOP, unsigned OVER, unsigned NONE, unsigned SIGN, bool SATURATE>
__device__ inline unsigned nearest_code(float x) {
    constexpr int REST = 23 - DIGITS;                        // digits that are rounded away
    constexpr unsigned FIRST = unsigned(127 + LEAST) << 23;  // the least normal number
    const float most = __uint_as_float(((SATURATE ? TOP : TOP + 1) << REST) + FIRST - (1u << 23)), size = fminf(fabsf(x), most);
    const unsigned a = __float_as_uint(size), exponent = a & 0x7f800000, own = exponent > FIRST ? exponent : FIRST;
    const unsigned unit = own + (unsigned(REST) << 23);      // whose last place is that of x in the format
    unsigned m = __float_as_uint(size + __uint_as_float(unit)) - unit + ((own - FIRST) >> REST);
    if (LEAST == -126) m = (a + (1u << (REST - 1)) - 1 + (a >> REST & 1)) >> REST;  // no such units, but a float's own exponents
    const unsigned sign = __float_as_uint(x) >> (SIGN == 8 ? 28 : SIGN == 0x80 ? 24 : 16) & SIGN;
    if (x != x) return NONE > TOP ? NONE | sign : NONE;      // what stands for NaN may be a number
    return NONE == SIGN && m == 0 ? 0 : sign | (!SATURATE && m > TOP ? OVER : m);
}
