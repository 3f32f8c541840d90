// The greatest of those x(k) whose key is `one`, of n keys in an order.
template <typename F, typename X, typename Keys, typename Order>
inline F keyed_max(int64_t one, int64_t n, const X& x, const Keys& keys, const Order& order) {
    const KeyedPlaces places = keyed_places(one, n, keys);
    return ranged_max<F>(places.lo, places.hi, x, order);
}
