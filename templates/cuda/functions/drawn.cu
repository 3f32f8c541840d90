// Random words of neighbours along a row whose first element has position `before` in the stream: of a vector that begins at a multiple of
// four, four of each counter. Of an element's own position the bits in KEEPS stay and those in SETS are set: its last two at most change.
template <typename Walk, i64 KEEPS, i64 SETS> struct Drawn {
    i64 seed, offset, before;
    typename Walk::Place from[Walk::TAKEN];
    u32 words[Walk::LANES];

    __device__ u32 word(i64 place) const { return u32(philox(seed, offset, (i64(u64(before) + u64(place)) & KEEPS) | SETS)); }
    template <typename W, typename Chunk> __device__ void fetch(const W&, const Chunk& c, int v) { from[v] = c.first; }
    template <typename W> __device__ void take(const W&, int, int k) {
        const u64 first = u64(before) + u64(from[k]);
        if constexpr (Walk::BY_FOURS) {
            u32 four[4];
            #pragma unroll
            for (int n = 0; n < Walk::LANES; n++) {
                if (n % 4 == 0) four_words(seed, offset, first / 4 + n / 4, four);
                words[n] = four[((n & KEEPS) | SETS) % 4];
            }
        } else {
            Philox neighbours;
            #pragma unroll
            for (int n = 0; n < Walk::LANES; n++) words[n] = u32(neighbours(seed, offset, (i64(first + n) & KEEPS) | SETS));
        }
    }
    __device__ u32 one(int, int k) const { return words[k]; }
    template <typename W> __device__ u32 one_loose(const W& walk, int j) const { return word(i64(walk.loose(j))); }
    template <typename W, typename Chunk> __device__ void put(const W&, const Chunk&, int) {}
    template <typename W> __device__ void put_loose(const W&, int) {}
};
template <typename Walk, i64 KEEPS = -1, i64 SETS = 0> __device__ inline Drawn<Walk, KEEPS, SETS> drawn(i64 seed, i64 offset, i64 before) {
    return {seed, offset, before, {}, {}};
}
