// log(exp(a) + exp(b)); of infinities the greater, NaN if either is.
template <typename F> inline F log_add_exp(F a, F b) {
    const F top = a > b || a != a ? a : b, low = a > b || a != a ? b : a;
    return top == low ? top + F(0.6931471805599453) : low != low ? low : top + std::log1p(std::exp(low - top));
}
