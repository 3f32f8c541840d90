// times * erfc(scale * x), scale and times literals, but for the rounding of x^2 2^-20.8 of the value off.
inline float nearer_erfc(float x, float scale = 1.0f, float times = 1.0f) { return short_erfc<2>(x, scale, times); }
