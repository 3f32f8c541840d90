// tanh(x); for results T of 16 bits the fast form.
template <typename T, typename F> inline F brief_tanh(F x) {
    if constexpr (is_brief<T>) return fast_tanh(x);
    else return std::tanh(x);
}
