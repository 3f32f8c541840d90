// The derivative of sigmoid, with the fast exponential.
inline float fast_sigmoid_slope(float x) {
    const float e = fast_exp(-std::fabs(x)), s = 1.0f + e;
    return e / (s * s);
}
