// What blocks that share rows tell one another.
#pragma once
#include "kgen_memory.cuh"

// What blocks tell one another in memory that was cleared: words, each beside a mark that it is there.
template <typename P> struct Told {
    static constexpr int COUNT = Words<P>::COUNT;
    const volatile u64* from;
    u64 found[COUNT];

    Told() = default;
    __device__ Told(const unsigned* work, i64 at) : Told(reinterpret_cast<const u64*>(work) + 1 + at * COUNT) {}
    __device__ explicit Told(const u64* from) : from(from) {
        #pragma unroll
        for (int w = 0; w < COUNT; w++) found[w] = from[w];
    }
    __device__ P heard() {
        Words<P> words;
        #pragma unroll
        for (int w = 0; w < COUNT; w++) {
            while (found[w] >> 32 == 0) found[w] = from[w];
            words.at[w] = unsigned(found[w]);
        }
        return words;
    }
};
template <typename P> __device__ inline void tell(volatile u64* to, const P& value) {
    const Words<P> words(value);
    #pragma unroll
    for (int w = 0; w < words.COUNT; w++) to[w] = 1ull << 32 | words.at[w];
}
template <typename P> __device__ inline void tell(unsigned* work, i64 at, const P& value) {
    tell(reinterpret_cast<u64*>(work) + 1 + at * Words<P>::COUNT, value);
}
template <int THREADS> __device__ inline void clear(unsigned* work, i64 words) {
    for (i64 i = i64(blockIdx.x) * THREADS + threadIdx.x; i <= words; i += i64(gridDim.x) * THREADS) reinterpret_cast<u64*>(work)[i] = 0;
}
// How many blocks of a launch began before this one.
__device__ inline unsigned ticket(unsigned* work) {
    __shared__ unsigned taken;
    if (threadIdx.x == 0) taken = atomicAdd(work, 1u);
    __syncthreads();
    return taken;
}
