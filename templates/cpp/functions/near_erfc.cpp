// times * erfc(scale * x), scale and times literals; for results T of 16 bits the form that is short and near enough for differences too.
template <typename T, typename F> inline F near_erfc(F x, F scale = F(1), F times = F(1)) {
    if constexpr (is_brief<T>) return nearer_erfc(x, scale, times);
    else return error_complement(x, scale, times);
}
