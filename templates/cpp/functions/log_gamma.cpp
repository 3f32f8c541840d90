// log |gamma(x)|, in double; lgamma_r leaves the global signgam alone, so threads may call it.
template <typename F> inline F log_gamma(F x) {
    int sign;
    return F(::lgamma_r(double(x), &sign));
}
