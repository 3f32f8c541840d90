// The sum of x(j), or of x(order(j)), from lo up to hi, of type F or that of several rows: in eight lanes by blocks of 128 terms, whose sums
// are added up sixteen by sixteen. The order of the additions depends on the number of terms alone. Most are few, where keys are many.
template <typename F, typename V> using summed = std::conditional_t<std::is_convertible_v<V, F>, F, V>;
template <typename F, typename X> [[gnu::noinline]] auto sum_of_many(int64_t lo, int64_t hi, const X& x) {
    using V = summed<F, decltype(x(lo))>;
    V total[5] = {};
    for (int64_t j = lo, blocks = 1; j < hi; blocks++) {
        const int64_t end = hi - j < 128 ? hi : j + 128;
        V lanes[8] = {};
        for (; j + 8 <= end; j += 8) {
            for (int l = 0; l < 8; l++) lanes[l] += x(j + l);
        }
        for (int l = 0; j < end; j++, l++) lanes[l] += x(j);
        total[0] += ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
        for (int k = 0; k < 4 && blocks % (int64_t(16) << 4 * k) == 0; k++) {
            total[k + 1] += total[k];
            total[k] = V();
        }
    }
    return total[0] + total[1] + total[2] + total[3] + total[4];
}
template <typename F, typename X> [[gnu::always_inline]] inline auto ranged_sum(int64_t lo, int64_t hi, const X& x) {
    using V = summed<F, decltype(x(lo))>;
    if (hi - lo > 2) return sum_of_many<F>(lo, hi, x);
    return (hi <= lo ? V() : hi - lo == 2 ? x(lo) + x(lo + 1) : V(x(lo))) + V();
}
template <typename F, typename X, typename Order> [[gnu::always_inline]] inline auto ranged_sum(int64_t lo, int64_t hi, const X& x, const Order& order) {
    return ranged_sum<F>(lo, hi, [&](int64_t j) { return x(order(j)); });
}
template <typename F, typename X, typename Begin, typename Until>
inline F ranged_sum(int64_t lo, int64_t hi, const X& x, const Begin& begin, const Until& until, int64_t at) {
    return ranged_sum<F>(lo, hi, [&](int64_t j) { return begin(j) <= at && at < until(j) ? x(j) : F(); });
}
