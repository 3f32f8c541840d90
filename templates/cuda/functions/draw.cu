// The words of a vector of neighbours, whose first position in the stream is a multiple of LANES: four of each counter. Of an element's own
// position the bits in KEEPS stay and those in SETS are set: its last two at most change. Positions that may stand still have each their own.
template <int LANES, u64 SPLAT, int K, i64 KEEPS = -1, i64 SETS = 0, typename Layout, typename Index>
__device__ inline Vector<u32, LANES> draw(const Layout& layout, i64 seed, i64 offset, Index first) {
    Vector<u32, LANES> words;
    u32 four[4];
    #pragma unroll
    for (int n = 0; n < LANES; n++) {
        if constexpr (LANES < 4 || (SPLAT >> K % 64 & 1)) {
            words.at[n] = u32(philox(seed, offset, (i64(first + n * layout.step(K)) & KEEPS) | SETS));
        } else {
            if (n % 4 == 0) four_words(seed, offset, u64(first) / 4 + n / 4, four);
            words.at[n] = four[((n & KEEPS) | SETS) % 4];
        }
    }
    return words;
}
