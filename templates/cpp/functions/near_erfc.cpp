// erfc(x); for results T of 16 bits the form that is short and near enough for differences too.
template <typename T, typename F> inline F near_erfc(F x) {
    if constexpr (is_brief<T>) return nearer_erfc(x);
    else return error_complement(x);
}
