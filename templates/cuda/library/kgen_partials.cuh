// Partial results of a reading: in memory, from thread to thread, and as one of several.
#pragma once
#include "kgen_vectors.cuh"

// How many vectors of a piece of a row a thread takes, of `count` in it and of so many that it takes at all: up to four, where four threads or
// more are left for the piece, which a warp has.
__device__ constexpr int vectors_of_piece(int count, int vectors, int team, bool shared) {
    if ((count & (count - 1)) != 0 || (shared && count > 32)) return 1;
    for (int own = 4; own > 1; own /= 2) {
        const int threads = count / own;
        if (threads >= 4 && threads <= 32 && vectors % own == 0 && (team == 0 || team % threads == 0)) return own;
    }
    return 1;
}

// A vector that was taken before in the same reading.
template <typename Walk, typename In> __device__ inline auto retake(Walk& walk, In& in, int v, int k, int) -> decltype(in.again(walk, v, k)) {
    return in.again(walk, v, k);
}
template <typename Walk, typename In> __device__ inline void retake(Walk& walk, In& in, int v, int k, long) { in.take(walk, v, k); }

// That a reading has taken an operand.
template <typename In> __device__ inline auto mark(In& in, int) -> decltype(in.taken = 1) { return in.taken = 1; }
template <typename In> __device__ inline auto mark(In& in, int) -> decltype(in.took()) { return in.took(); }
template <typename In> __device__ inline void mark(In&, long) {}
// That a reading has from elsewhere what an operand's v-th vector would be taken for.
template <typename In> __device__ inline auto pass(In& in, int v, int k, int) -> decltype(in.pass(v, k)) { return in.pass(v, k); }
template <typename In> __device__ inline void pass(In&, int, int, long) {}

struct Partials {
    // A part of elements that are there, else of none: a branch would stand between vectors.
    template <typename Chunk, typename Part> __device__ static Part some(const Chunk& c, const Part& part) { return c.some ? part : Part(); }
    // Whether what follows from an element is added to something: then only from those that are there.
    template <typename In> __device__ static constexpr auto adds(int) -> decltype(&In::write, true) { return true; }
    template <typename In> __device__ static constexpr bool adds(long) { return false; }
    // The registers that a vector of an input takes as two aligned ones, or as two elements and what they are told apart by.
    template <typename In> __device__ static constexpr auto halved(int) -> decltype(int(In::HALVES)) { return In::HALVES ? int(In::BYTES) / 2 : In::PARTS ? 4 : 0; }
    template <typename In> __device__ static constexpr int halved(long) { return 0; }
    // Whether an input is read from memory each time.
    template <typename In> __device__ static constexpr auto fetched(int) -> decltype(In::HELD == 0) { return In::HELD == 0; }
    template <typename In> __device__ static constexpr bool fetched(long) { return false; }
    __device__ static unsigned barrier(int k) {
        __shared__ u64 barriers[16];  // a kernel with more readings has no clusters
        return unsigned(__cvta_generic_to_shared(&barriers[k]));
    }
    // Until the bytes that a barrier expects are there, for the time that `parity` tells.
    __device__ static void await(unsigned barrier, unsigned parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("{\n"
                     ".reg .pred done;\n"
                     "wait: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra wait;\n"
                     "}" :: "r"(barrier), "r"(parity) : "memory");
#endif
    }
    // Whether it has sums about a maximum.
    template <typename Part> __device__ static constexpr auto rescales(int) -> decltype(&Part::rescale, true) { return true; }
    template <typename Part> __device__ static constexpr bool rescales(long) { return false; }
    template <typename Part> __device__ static void save(unsigned* to, const Part& part) {
        const Words<Part> words(part);
        #pragma unroll
        for (int k = 0; k < words.COUNT; k++) to[k] = words.at[k];
    }
    template <typename Part, typename From> __device__ static Part load(From from, Part) {
        Words<Part> words;
        #pragma unroll
        for (int k = 0; k < words.COUNT; k++) words.at[k] = from[k];
        return words;
    }
    // The parts of LANES neighbouring threads as one, in each of them.
    template <int LANES, typename Part> __device__ static Part added(Part part) {
        #pragma unroll
        for (int apart = 1; apart < LANES; apart *= 2) {
            Words<Part> words(part);
            #pragma unroll
            for (unsigned& word : words.at) word = __shfl_xor_sync(~0u, word, apart);
            part.add(words);
        }
        return part;
    }
    // The same; with sums about a maximum the maxima first, so that each thread's sums are moved once.
    template <int LANES, typename Part> __device__ static Part warp(Part part) {
        if constexpr (!rescales<Part>(0)) {
            return added<LANES>(part);
        } else {
            Part top = part;
            #pragma unroll
            for (int apart = 1; apart < LANES; apart *= 2) {
                Words<Part> words(top);
                #pragma unroll
                for (unsigned& word : words.at) word = __shfl_xor_sync(~0u, word, apart);
                top.merge_peaks(words);
            }
            part.rescale(top);
            #pragma unroll
            for (int apart = 1; apart < LANES; apart *= 2) {
                Words<Part> words(part);
                #pragma unroll
                for (unsigned& word : words.at) word = __shfl_xor_sync(~0u, word, apart);
                part.merge_sums(words);
            }
            return part;
        }
    }
    // The parts of COUNT threads as one, whose k-th words `get(t, k)` gives: likewise.
    template <int COUNT, typename Part, typename Get> __device__ static Part whole_of(Get get) {
        const auto part = [&](int t) {
            Words<Part> words;
            #pragma unroll
            for (int k = 0; k < words.COUNT; k++) words.at[k] = get(t, k);
            return Part(words);
        };
        Part whole;
        if constexpr (rescales<Part>(0)) {
            #pragma unroll 8
            for (int t = 0; t < COUNT; t++) whole.merge_peaks(part(t));
            #pragma unroll 8
            for (int t = 0; t < COUNT; t++) {
                Part one = part(t);
                one.rescale(whole);
                whole.merge_sums(one);
            }
        } else {
            #pragma unroll 8
            for (int t = 0; t < COUNT; t++) whole.add(part(t));
        }
        return whole;
    }
    // The parts of COUNT neighbours as one: those of pairs, and so on; `join(a, b)` adds b, which comes later, to a.
    template <int COUNT, typename Part, typename Join> __device__ static Part tree(Part (&part)[COUNT], Join join) {
        #pragma unroll
        for (int apart = 1; apart < COUNT; apart *= 2) {
            #pragma unroll
            for (int k = 0; k + apart < COUNT; k += 2 * apart) join(part[k], part[k + apart]);
        }
        return part[0];
    }
    // The results of COUNT elements as one, likewise.
    template <int COUNT, typename Part, typename F, typename Join, typename... In> __device__ static Part joined(int v, F f, Join join, In&... in) {
        Part part[COUNT];
        #pragma unroll
        for (int k = 0; k < COUNT; k++) part[k] = f(in.one(v, k)...);
        return tree(part, join);
    }
    // The sums of COUNT elements about a peak; each added to those of its four neighbours, where it is rounded with them.
    template <int COUNT, typename Part, typename About, typename... In>
    __device__ static Part summed(int v, const Part& top, const About& about, In&... in) {
        return joined<COUNT, Part>(v, Sums<Part, About>{top, about}, [](Part& a, const Part& b) { a.merge_sums(b); }, in...);
    }
    template <int COUNT, typename Part, typename F, typename... In>
    __device__ static Part summed(int v, const Part& top, const Adding<F>& about, In&... in) {
        constexpr int EACH = COUNT < 4 ? COUNT : 4;
        Part part[COUNT / EACH];
        #pragma unroll
        for (int k = 0; k < COUNT; k++) about.add(part[k / EACH], top, in.one(v, k)...);
        return tree(part, [](Part& a, const Part& b) { a.merge_sums(b); });
    }
    // Add a part whose elements come later in the row; for some that is simpler.
    template <typename Part> __device__ static auto follow(Part& part, const Part& later, int) -> decltype(part.follow(later)) {
        return part.follow(later);
    }
    template <typename Part> __device__ static void follow(Part& part, const Part& later, long) { part.add(later); }
};
