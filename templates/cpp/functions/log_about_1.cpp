// log(1 + r) for r from -1/3 to 1/3 (minimax, 2^-25.2 off).
[[maybe_unused]] inline float log_about_1(float r) {
    float p = std::fma(r, 0.140263433f, -0.153885327f);
    p = std::fma(r, p, 0.139958102f);
    p = std::fma(r, p, -0.164159622f);
    p = std::fma(r, p, 0.200111685f);
    p = std::fma(r, p, -0.250078188f);
    p = std::fma(r, p, 0.333331981f);
    p = std::fma(r, p, -0.499999361f);
    return std::fma(r * r, p, r);
}
