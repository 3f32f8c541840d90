// What is made of a row's operands: values that take the place of one of them, and codes, two at a time. A walk W that takes or writes them
// may be one that Walk is derived from.
#pragma once
#include "kgen_walk.cuh"

// Values of T that `make` gives for operands along a row, the first of T as well: from when they are `kept` on they stand where that one was
// held.
template <typename T, typename Walk, typename Make, typename In> struct Made {
    Make make;
    In in;
    bool kept;

    template <typename W> __device__ void fetch(const W& walk, const typename W::Chunk& c, int v) {
        if (!kept) in.fetch(walk, c, v);
    }
    template <typename W> __device__ void take(const W& walk, int v, int k) {
        if (kept) return in.first.take(walk, v, k);
        in.take(walk, v, k);
        auto y = in.first.values(k);
        #pragma unroll
        for (int e = 0; e < int(sizeof(y) / sizeof(T)); e++) y.at[e] = in.one(make, k, e);
        in.first.replace(walk, v, k, y);
    }
    // The same vector once more, in one reading: where it was put.
    template <typename W> __device__ void again(const W&, int, int) {}
    __device__ auto one(int v, int k) const { return in.first.one(v, k); }
    __device__ auto vectors() const { return in.first.vectors(); }
    __device__ const auto& values(int v) const { return in.first.values(v); }
    template <typename W> __device__ T one_loose(const W& walk, int j) { return in.loose(make, walk, j); }
    template <typename W> __device__ T one_at(const W& walk, typename W::Place i) { return in.at(make, walk, i); }
    template <typename W> __device__ void put(const W&, const typename W::Chunk&, int) {}
    template <typename W> __device__ void put_loose(const W&, int) {}
    template <typename W> __device__ void put_at(const W&, typename W::Place) {}
};
template <typename T, typename Walk, typename Make, typename In>
__device__ inline Made<T, Walk, Make, In> made(const Walk&, Make make, In in) { return {make, in, false}; }

// What is written of operand O along a row as codes of a byte, of which `pair` makes those of two numbers.
template <int O, typename Walk, typename Pair> struct Coded {
    using Codes = decltype(static_cast<Walk*>(nullptr)->template output<O>(static_cast<u8*>(nullptr)));
    static constexpr int VEC = sizeof(Codes::now[0]), VECTORS = sizeof(Codes::now) / VEC;
    Codes codes;
    Pair pair;
    float now[VECTORS][VEC], now_loose;

    template <typename W> __device__ void fetch(const W&, const typename W::Chunk&, int) {}
    template <typename W> __device__ void take(const W&, int, int) {}
    __device__ float& one(int v, int k) { return now[v][k]; }
    template <typename W> __device__ float& one_loose(const W&, int) { return now_loose; }
    template <typename W> __device__ void put(const W& walk, const typename W::Chunk& c, int v) {
        #pragma unroll
        for (int k = 0; k < VEC; k += 2) {
            const u16 two = pair(now[v][k], now[v][k + (VEC > 1)]);
            memcpy(&codes.now[v].at[k], &two, VEC > 1 ? 2 : 1);
        }
        codes.put(walk, c, v);
    }
    template <typename W, typename C = Codes> __device__ auto leave(const W& walk) const -> decltype(static_cast<const C*>(nullptr)->leave(walk)) { return codes.leave(walk); }
    template <typename W> __device__ void put_loose(const W& walk, int j) {
        codes.now_loose = u8(pair(now_loose, now_loose));
        codes.put_loose(walk, j);
    }
    template <typename W> __device__ float& one_at(const W&, typename W::Place) { return now_loose; }
    template <typename W> __device__ void put_at(const W& walk, typename W::Place i) {
        codes.now_loose = u8(pair(now_loose, now_loose));
        codes.put_at(walk, i);
    }
};
template <int O, typename Walk, typename Pair> __device__ inline Coded<O, Walk, Pair> coded(Walk& walk, u8* p, Pair pair) {
    return {walk.template output<O>(p), pair};
}
