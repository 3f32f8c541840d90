// Rows in memory, and vectors of them that begin anywhere.
#pragma once
#include "kgen_memory.cuh"

// Rows in memory: how many, how many elements each has, and where these lie in K operands. The dims are merged, outermost first.
// A row is reduced in segments of `span` vectors; `work` has `slot` words for each of their results where blocks share a row. `wide` and
// `main` are what a walk that is compiled for any has for WIDE and MAIN.
template <int RR, int RI, int K, int G, typename Index> struct Rows {
    Index rows, n, segments, span, misaligned, main;
    Index row_size[RR], size[RI], row_stride[K][RR], stride[K][RI];
    i64 gather_size[G], gather_stride[G];
    u64 wide;
    unsigned* work;
    Index slot;
};

// VEC neighbours as the two aligned vectors that they lie in, from element `over` of the first on: what is loaded is not waited for before
// it is used. Neighbours of which some lie beyond the row are loaded by themselves.
template <typename T, int VEC> struct Halves {
    static constexpr int WORDS = Words<Vector<T, VEC>>::COUNT;
    Vector<unsigned, WORDS> low, high;
    unsigned over;

    // From element `first` on of a row of n elements that begins at p, whose vectors begin with element `head`; it lies at `from`.
    template <typename Index> __device__ Halves& load(const T* p, Index head, Index n, Index first, Index from, Index step) {
        over = unsigned((reinterpret_cast<u64>(p) / sizeof(T) + head) % VEC);
        if (step == 1 && over <= first && first - over + 2 * VEC <= n) {
            const auto* aligned = reinterpret_cast<const Vector<unsigned, WORDS>*>(p + (first - over));
            low = aligned[0];
            high = aligned[1];
        } else {
            over = 0;
            const Words<Vector<T, VEC>> words(apart<T, VEC>(p + from, step));
            #pragma unroll
            for (int k = 0; k < WORDS; k++) low.at[k] = words.at[k];
        }
        return *this;
    }
    __device__ Vector<T, VEC> whole() const { return shifted<T, VEC>(low, high, over); }
};

// What an element adds to sums about a maximum, as a function of the element alone.
template <typename Part, typename About> struct Sums {
    const Part& top;
    const About& about;
    template <typename... X> __device__ Part operator()(X... x) const { return about(top, x...); }
};
