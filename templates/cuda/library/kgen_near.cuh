// Neighbours along a row that a reading takes.
#pragma once
#include "kgen_rows.cuh"

// The element of operand O that lies `by` further on than a row's i-th, along the dim of which operand I is the index; 0 where there is none.
// `place` and `at` are where a row begins in each of the two. It is called, since few rows need it.
template <int O, int I, typename T, typename Layout, typename Place>
__device__ __noinline__ T neighbour(const Layout& rows, const T* p, Place at, Place i, i64 by) {
    i64 size = 0, stride = 0;
    #pragma unroll
    for (int d = 0; d < int(sizeof(rows.size) / sizeof(Place)); d++) {
        size += i64(rows.size[d]) * i64(rows.stride[I][d]);
        stride += i64(rows.stride[O][d]) * i64(rows.stride[I][d]);
    }
    const i64 there = i64(at) + i64(divided(rows.size, rows.stride[I], i)) + by;
    return there >= 0 && there < size ? p[i64(divided(rows.size, rows.stride[O], i)) + by * stride] : T();
}
// A walk whose vectors lie along the dims that neighbours lie along. A thread of a row in segments takes a SINGLE vector at a time where it
// stores some of each on the way, which takes registers.
template <typename W, bool SINGLE = false> struct Nearby : W {
    static constexpr bool ALONG = true;
    using W::W;
};
template <int THREADS, int BLOCKS, int TEAM, bool ACROSS, int VECTORS, int VEC, bool EDGES, u64 WIDE, int MAIN, int KEEP, bool CLUSTER,
          int STEP, int RR, int RI, int K, int G, typename Index>
struct Nearby<Walk<THREADS, BLOCKS, TEAM, ACROSS, VECTORS, VEC, EDGES, WIDE, MAIN, true, KEEP, CLUSTER, STEP, RR, RI, K, G, Index>, true>
    : Nearby<Walk<THREADS, BLOCKS, TEAM, ACROSS, 1, VEC, EDGES, WIDE, MAIN, true, KEEP, CLUSTER, STEP, RR, RI, K, G, Index>> {
    using Nearby<Walk<THREADS, BLOCKS, TEAM, ACROSS, 1, VEC, EDGES, WIDE, MAIN, true, KEEP, CLUSTER, STEP, RR, RI, K, G, Index>>::Nearby;
};
template <typename Walk> __device__ constexpr auto along(int) -> decltype(Walk::ALONG) { return Walk::ALONG; }
template <typename Walk> __device__ constexpr bool along(long) { return false; }
// The elements of operand O that lie BY further on along the dim of which operand I is the index, 0 where there are none. Where rows are
// whole vectors along that dim, those of neighbours lie in two of the row's own.
template <int O, int I, int BY, typename Walk, typename T> struct Near {
    using Place = typename Walk::Place;
    static constexpr int VEC = Walk::LANES, VECTORS = Walk::TAKEN, AWAY = BY >= 0 ? BY / VEC : -((VEC - 1 - BY) / VEC), OVER = BY - AWAY * VEC;
    const T* p;
    Vector<T, VEC> low[VECTORS], high[VECTORS];

    __device__ Near(const Walk& walk, const T* start) : p(start + walk.at_row[O]) {}
    template <typename W> __device__ T single(const W& walk, Place i) const { return neighbour<O, I>(walk.rows, p, walk.at_row[I], i, BY); }
    // The vector that lies AWAY from the own one, which begins with the index `at`.
    __device__ static Vector<T, VEC> whole(const T* own, i64 at, i64 size, int away) {
        const bool there = away == 0 || (at + away * VEC >= 0 && at + away * VEC < size);
        const auto v = *reinterpret_cast<const Vector<T, VEC>*>(own + (there ? away * VEC : 0));
        return there ? v : Vector<T, VEC>();
    }
    template <typename W> __device__ void fetch(const W& walk, const typename W::Chunk& c, int v) {
        if constexpr (along<Walk>(0) && Walk::template lines<O>()) {
            constexpr int LAST = sizeof(walk.rows.size) / sizeof(Place) - 1;
            const i64 at = i64(walk.at_row[I]) + i64(walk.offset(I, c.first)), size = i64(walk.rows.size[LAST]);
            const T* own = p + walk.offset(O, c.first);
            low[v] = whole(own, at, size, AWAY);
            if (OVER > 0) high[v] = whole(own, at, size, AWAY + 1);
        } else {
            #pragma unroll
            for (int k = 0; k < VEC; k++) (k + OVER < VEC ? low : high)[v].at[(k + OVER) % VEC] = single(walk, c.first + k);
        }
    }
    template <typename W> __device__ void take(const W&, int, int) {}
    __device__ auto one(int v, int k) const { return element(k + OVER < VEC ? low[v] : high[v], (k + OVER) % VEC); }
    template <typename W> __device__ T one_loose(const W& walk, int j) const { return single(walk, walk.loose(j)); }
    template <typename W> __device__ void put(const W&, const typename W::Chunk&, int) {}
    template <typename W> __device__ void put_loose(const W&, int) {}
};
template <int O, int I, int BY, typename Walk, typename T> __device__ inline Near<O, I, BY, Walk, T> near(const Walk& walk, const T* p) { return {walk, p}; }
// Whether there is one so far along the dim of index I.
template <int O, int I, int BY, typename Walk> struct There {
    using Place = typename Walk::Place;
    static constexpr int VEC = Walk::LANES, VECTORS = Walk::TAKEN, AWAY = BY / VEC, OVER = BY % VEC;
    bool is[VECTORS][VEC];

    template <typename W> __device__ static bool single(const W& walk, Place i) {
        i64 size = 0;
        #pragma unroll
        for (int d = 0; d < int(sizeof(walk.rows.size) / sizeof(Place)); d++) size += i64(walk.rows.size[d]) * i64(walk.rows.stride[I][d]);
        return i64(walk.at_row[I]) + i64(walk.offset(I, i)) + BY < size;
    }
    template <typename W> __device__ void fetch(const W& walk, const typename W::Chunk& c, int v) {
        if constexpr (along<Walk>(0) && Walk::template lines<O>()) {
            constexpr int LAST = sizeof(walk.rows.size) / sizeof(Place) - 1;
            const i64 at = i64(walk.at_row[I]) + i64(walk.offset(I, c.first)) + AWAY * VEC, size = i64(walk.rows.size[LAST]);
            const bool low = AWAY == 0 || at < size, high = at + VEC < size;
            #pragma unroll
            for (int k = 0; k < VEC; k++) is[v][k] = k + OVER < VEC ? low : high;
        } else {
            #pragma unroll
            for (int k = 0; k < VEC; k++) is[v][k] = single(walk, c.first + k);
        }
    }
    template <typename W> __device__ void take(const W&, int, int) {}
    __device__ bool one(int v, int k) const { return is[v][k]; }
    template <typename W> __device__ bool one_loose(const W& walk, int j) const { return single(walk, walk.loose(j)); }
    template <typename W> __device__ void put(const W&, const typename W::Chunk&, int) {}
    template <typename W> __device__ void put_loose(const W&, int) {}
};
template <int O, int I, int BY, typename Walk> __device__ inline There<O, I, BY, Walk> there(const Walk&) { return {}; }

#ifndef __CUDACC_RTC__
namespace {
namespace host {

// A pass that reads neighbours along the dims of which the operands of INDICES are the indices: in vectors along the lines that these lie in,
// or element by element, so that a file has few of its kernels, of which each takes nvcc long.
[[maybe_unused]] constexpr Facts near_facts(Facts f, u64 indices) {
    f.near = indices;
    return f;
}
template <u64 INDICES, typename P, bool SINGLE = false> struct NearPass : P {
    static constexpr Facts FACTS = near_facts(P::FACTS, INDICES);
    static constexpr Kernels<P::STEPS> KERNELS = Kernels<P::STEPS>(FACTS);
};
template <typename W, bool SINGLE> struct NearbyWay { using Walk = Nearby<typename W::Walk, SINGLE>; };

// Launch it.
template <u64 INDICES, typename P, bool SINGLE, typename Kernel, typename... A>
cudaError_t run_rows(NearPass<INDICES, P, SINGLE> pass, int rank, int outer, const i64* size, const RowOperand (&operands)[P::OPERANDS],
                     cudaStream_t stream, Kernel kernel, A... arguments) {
    const auto along = [&](auto way) { return kernel(NearbyWay<decltype(way), SINGLE>()); };
    return run_rows<NearPass<INDICES, P, SINGLE>>(pass, rank, outer, size, operands, stream, along, arguments...);
}

}  // namespace host
}  // namespace
#endif
