// times * erfc(scale * x), scale and times literals, but for the rounding of x^2 2^-19.5 of the value off.
inline float fast_erfc(float x, float scale = 1.0f, float times = 1.0f) { return short_erfc<1>(x, scale, times); }
