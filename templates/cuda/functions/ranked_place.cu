// The place that has a rank, counted from behind a row of n elements: n itself where nothing reaches, -1 where nothing is needed.
__device__ inline i64 ranked_place(u64 rank, i64 n) {
    const i64 place = (i64(1) << place_bits(n)) - 2 - i64(rank);
    return place < n ? place : n;
}
