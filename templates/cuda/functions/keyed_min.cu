// The least of those x(k) whose key is `one`, of n keys in an order.
template <typename F, typename X, typename Keys, typename Order>
__device__ inline F keyed_min(i64 one, i64 n, const X& x, const Keys& keys, const Order& order) {
    const KeyedPlaces places = keyed_places(one, n, keys);
    return ranged_min<F>(places.lo, places.hi, x, order);
}
