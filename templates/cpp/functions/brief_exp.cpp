// exp(x); for results T of 16 bits the fast form.
template <typename T, typename F> inline F brief_exp(F x) {
    if constexpr (is_brief<T>) return fast_exp(x);
    else return exponential(x);
}
