// log2(x)
[[maybe_unused]] inline float binary_logarithm(float x) { return logarithm(x, 1.0f, 1.44269504f); }
[[maybe_unused]] inline double binary_logarithm(double x) { return std::log2(x); }
