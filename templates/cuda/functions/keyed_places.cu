// The places in an order of keys that are one: from lo up to hi.
struct KeyedPlaces { i64 lo, hi; };
// How many keys are below one, of those in their order that stand from low up to high, all before them being so.
template <typename Keys> __device__ inline i64 keys_below(i64 one, i64 low, i64 high, const Keys& keys) {
    while (low < high) {
        const i64 middle = low + (high - low) / 2;
        if (keys(middle) < one) low = middle + 1;
        else high = middle;
    }
    return low;
}
template <typename Keys> __device__ inline KeyedPlaces keyed_places(i64 one, i64 n, const Keys& keys) {
    const i64 lo = keys_below(one, 0, n, keys);
    i64 last = lo, end = lo;
    for (i64 step = 1; end < n && keys(end) == one; step *= 2) {  // most are few
        last = end + 1;
        end = n - end < step ? n : end + step;
    }
    return {lo, keys_below(one + 1, last, end, keys)};
}
