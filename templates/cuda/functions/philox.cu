// Both halves of a product by one instruction: of u64 operands the compiler would add products of their upper halves, which are 0.
__device__ inline u64 wide_product(u32 a, u32 b) {
    u64 product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
}
// The four words that Philox 4x32-10 makes of a counter, (offset, i / 4), under the key `seed`: element i has word i % 4 of them.
__device__ inline void four_words(i64 seed, i64 offset, u64 counter, u32 (&words)[4]) {
    u32 c0 = u32(offset), c1 = u32(u64(offset) >> 32), c2 = u32(counter), c3 = u32(counter >> 32);
    u32 k0 = u32(seed), k1 = u32(u64(seed) >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 p = wide_product(0xD2511F53u, c0), q = wide_product(0xCD9E8D57u, c2);
        c0 = u32(q >> 32) ^ c1 ^ k0;
        c1 = u32(q);
        c2 = u32(p >> 32) ^ c3 ^ k1;
        c3 = u32(p);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}
// The words of one counter, kept for the neighbours that share it; all calls of a Philox have one seed and one offset.
struct Philox {
    u64 at = ~u64(0);  // no element's
    u32 words[4];

    __device__ i64 operator()(i64 seed, i64 offset, i64 i) {
        if (at != u64(i) >> 2) {
            at = u64(i) >> 2;
            four_words(seed, offset, at, words);
        }
        const u32 low = i & 1 ? words[1] : words[0], high = i & 1 ? words[3] : words[2];
        return i & 2 ? high : low;
    }
};
__device__ inline i64 philox(i64 seed, i64 offset, i64 i) { return Philox()(seed, offset, i); }
