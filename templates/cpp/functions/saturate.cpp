// x cut to an integer: out of range the nearest, NaN 0.
template <typename I, typename F> inline I saturate(F x) {
    constexpr I low = std::numeric_limits<I>::min(), high = std::numeric_limits<I>::max();
    if constexpr (sizeof(I) < 4) {  // its ends are floats
        const F above = x > F(low) ? x : F(low), within = above < F(high) ? above : F(high);
        return I(int32_t(x == x ? within : F(0)));
    }
    constexpr F end = F(high / 2 + 1) * F(2);  // the first value past the range, a power of two
    bool inside = x > F(low) && x < end;
    I y = I(inside ? x : F(0));
    return x >= end ? high : x <= F(low) ? low : y;
}
