// Values as 32-bit words.
#pragma once
#include "kgen_numbers.cuh"

// The 32-bit words of a value, as they go from thread to thread.
template <typename P> struct Words {
    static constexpr int COUNT = (sizeof(P) + 3) / 4;
    unsigned at[COUNT];

    Words() = default;
    __device__ explicit Words(const P& p) {
        at[COUNT - 1] = 0;
        memcpy(at, &p, sizeof(P));
    }
    __device__ operator P() const {
        P p;
        memcpy(&p, at, sizeof(P));
        return p;
    }
};

// COUNT neighbours from p on, which lies `over` elements behind the first of an aligned vector: out of that and the next one.
template <typename T, int COUNT> __device__ inline Vector<T, COUNT> shifted(const T* p, unsigned over) {
    constexpr int WORDS = COUNT * sizeof(T) / 4;
    const auto* aligned = reinterpret_cast<const Vector<unsigned, WORDS>*>(p - over);
    const Vector<unsigned, WORDS> low = aligned[0], high = aligned[over > 0];
    const unsigned bytes = over * sizeof(T);
    unsigned words[2 * WORDS];
    #pragma unroll
    for (int k = 0; k < 2 * WORDS; k++) words[k] = k < WORDS ? low.at[k] : high.at[k - WORDS];
    #pragma unroll
    for (int apart = WORDS / 2; apart > 0; apart /= 2) {
        #pragma unroll
        for (int k = 0; k + apart < 2 * WORDS; k++) words[k] = bytes & (4 * apart) ? words[k + apart] : words[k];
    }
    Words<Vector<T, COUNT>> found;
    #pragma unroll
    for (int k = 0; k < WORDS; k++) {
        found.at[k] = sizeof(T) >= 4 ? words[k] : unsigned((u64(words[k + 1]) << 32 | words[k]) >> bytes % 4 * 8);
    }
    return found;
}
// COUNT elements from p on, every `step`: in little code, for the few that are not neighbours.
template <typename T, int COUNT, typename Index> __device__ inline Vector<T, COUNT> apart(const T* p, Index step) {
    Words<Vector<T, COUNT>> found{Vector<T, COUNT>()};
    #pragma unroll 1
    for (int k = 0; k < COUNT; k++, p += step) {
        const Words<T> one(*p);
        if constexpr (sizeof(T) >= 4) {
            constexpr int SIZE = one.COUNT;
            #pragma unroll
            for (int w = 0; w < found.COUNT; w++) found.at[w] = w + SIZE < found.COUNT ? found.at[w + SIZE] : one.at[w + SIZE - found.COUNT];
        } else {
            constexpr int BITS = 8 * sizeof(T);
            #pragma unroll
            for (int w = 0; w < found.COUNT; w++) {
                found.at[w] = found.at[w] >> BITS | (w + 1 < found.COUNT ? found.at[w + 1] : one.at[0]) << (32 - BITS);
            }
        }
    }
    return found;
}
