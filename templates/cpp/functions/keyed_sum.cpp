// The sum of those x(k) whose key is `one`, of n keys in an order.
template <typename F, typename X, typename Keys, typename Order>
inline auto keyed_sum(int64_t one, int64_t n, const X& x, const Keys& keys, const Order& order) {
    const KeyedPlaces places = keyed_places(one, n, keys);
    return ranged_sum<F>(places.lo, places.hi, x, order);
}
