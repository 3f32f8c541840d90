// The least of x(j), or of x(order(j)), from lo up to hi; of none infinity.
template <typename F, typename X> inline F ranged_min(int64_t lo, int64_t hi, const X& x) {
    F found = F(INFINITY);
    for (int64_t j = lo; j < hi; j++) found = minimum<F>(found, x(j));
    return found;
}
template <typename F, typename X, typename Order> inline F ranged_min(int64_t lo, int64_t hi, const X& x, const Order& order) {
    return ranged_min<F>(lo, hi, [&](int64_t j) { return x(order(j)); });
}
