// The places in an order of keys that are one: from lo up to hi.
struct KeyedPlaces { int64_t lo, hi; };
// How many keys are below one, of those in their order that stand from low up to high, all before them being so.
template <typename Keys> inline int64_t keys_below(int64_t one, int64_t low, int64_t high, const Keys& keys) {
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (keys(middle) < one) low = middle + 1;
        else high = middle;
    }
    return low;
}
template <typename Keys> inline KeyedPlaces keyed_places(int64_t one, int64_t n, const Keys& keys) {
    const int64_t lo = keys_below(one, 0, n, keys);
    int64_t last = lo, end = lo;
    for (int64_t step = 1; end < n && keys(end) == one; step *= 2) {  // most are few
        last = end + 1;
        end = n - end < step ? n : end + step;
    }
    return {lo, keys_below(one + 1, last, end, keys)};
}
