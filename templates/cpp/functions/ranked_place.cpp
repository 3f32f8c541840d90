// The place that has a rank, counted from behind a row of n elements: n itself where nothing reaches, -1 where nothing is needed.
inline int64_t ranked_place(uint64_t rank, int64_t n) {
    const int64_t place = (int64_t(1) << place_bits(n)) - 2 - int64_t(rank);
    return place < n ? place : n;
}
