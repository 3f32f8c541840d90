// How elements lie in memory, and values as the words that these move in.
#pragma once
#include "kgen_numbers.cuh"

// A launch of a plan may begin before the one that it follows has ended (`follows` of the launch): what that leaves is there behind this, and
// nothing is to be written before.
__device__ inline void dependency_synchronize() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Where element i of some dims lies. Of many it is mostly within the innermost; else divisions are long, and called.
template <int R, typename Index> __device__ inline Index divided(const Index (&size)[R], const Index (&stride)[R], Index i) {
    Index at = 0;
    #pragma unroll (R > 3 ? 1 : R)
    for (int d = R - 1; d >= 0; d--) {
        const Index outer = d > 0 ? i / size[d] : 0;
        at += (i - outer * size[d]) * stride[d];
        i = outer;
    }
    return at;
}
template <int R, typename Index> __device__ __noinline__ Index called(const Index (&size)[R], const Index (&stride)[R], Index i) {
    return divided(size, stride, i);
}
template <int R, typename Index> __device__ inline Index place_of(const Index (&size)[R], const Index (&stride)[R], Index i) {
    if constexpr (R <= 3) return divided(size, stride, i);
    else return i < size[R - 1] ? i * stride[R - 1] : called(size, stride, i);
}
// Where element i lies in each of K operands: its index along a dim is worked out once for all.
template <int R, int K, typename Index>
__device__ inline void places_of(const Index (&size)[R], const Index (&stride)[K][R], Index i, Index (&at)[K]) {
    #pragma unroll
    for (int k = 0; k < K; k++) at[k] = 0;
    #pragma unroll
    for (int d = R - 1; d >= 0; d--) {
        const Index outer = d > 0 ? i / size[d] : 0, own = i - outer * size[d];
        #pragma unroll
        for (int k = 0; k < K; k++) at[k] += own * stride[k][d];
        i = outer;
    }
}

// The address of what lies in memory, worked out once: the compiler would add it up again in 64 bits for each element that lies apart.
template <typename T> __device__ inline T* settled(T* p) {
    asm("" : "+l"(p));
#ifdef __CUDA_ARCH__
    __builtin_assume(__isGlobal(p));
#endif
    return p;
}

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

// COUNT neighbours out of two vectors' words, one behind the other: those from element `over` of the first on.
template <typename T, int COUNT, int WORDS>
__device__ inline Vector<T, COUNT> shifted(const Vector<unsigned, WORDS>& low, const Vector<unsigned, WORDS>& high, unsigned over) {
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
// COUNT neighbours from p on, which lies `over` elements behind the first of an aligned vector.
template <typename T, int COUNT> __device__ inline Vector<T, COUNT> shifted(const T* p, unsigned over) {
    constexpr int WORDS = COUNT * sizeof(T) / 4;
    const auto* aligned = reinterpret_cast<const Vector<unsigned, WORDS>*>(p - over);
    const Vector<unsigned, WORDS> low = aligned[0], high = aligned[over > 0];  // by reference each word would be loaded by itself
    return shifted<T, COUNT>(low, high, over);
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
