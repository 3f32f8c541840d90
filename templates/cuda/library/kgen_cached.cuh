// Rows that blocks share in one launch, in which a reading follows the one before so closely that it finds the row in the L2 cache.
#pragma once
#include "kgen_partials.cuh"
#include "kgen_told.cuh"

// Items between the last segment of a row in a reading and the first in the next, while which others are at work (launches.LATER).
constexpr unsigned LATER = 192;

// A block takes a segment of a row in one of the readings, the last of which stores: a ticket says which, of each reading in turn, those of a
// reading LATER behind the last of its row in the reading before. It waits for what older tickets tell alone, so that all blocks come to an
// end whoever else is on the device. `work` has the tickets, what is told of each row, how many of its segments arrived, and their parts.

// Of the readings of a launch, READINGS that reduce and one more: twice the number of this block's, its segment and its row; -2, and a row
// that there is none of, where none is left.
template <int READINGS, typename Walk, typename Index> __device__ inline int take_turn(const Walk& walk, Index& segment, Index& row) {
    const Index t = ticket(walk.rows.work), item = t / (READINGS + 1);
    const int reading = int(t % (READINGS + 1));
    const Index before = Index(reading) * (walk.rows.segments + LATER), items = walk.rows.rows * walk.rows.segments;
    if (item < before || item - before >= items) {
        row = walk.rows.rows;
        return -2;
    }
    row = (item - before) / walk.rows.segments;
    segment = (item - before) % walk.rows.segments;
    return 2 * reading;
}
template <int READINGS, typename Layout> struct Cached {
    const Layout& rows;
    i64 row;

    __device__ u64* told(int r) const { return reinterpret_cast<u64*>(rows.work) + 1 + (i64(r) * rows.rows + row) * rows.slot; }
    __device__ unsigned* arrived(int r) const {
        return reinterpret_cast<unsigned*>(reinterpret_cast<u64*>(rows.work) + 1 + i64(READINGS) * rows.rows * rows.slot) + i64(r) * rows.rows + row;
    }
    __device__ unsigned* parts() const { return arrived(READINGS) + row * (rows.segments * rows.slot - 1); }
    // The words that are cleared before, of eight bytes each.
    __device__ static i64 words(const Layout& rows) { return i64(READINGS) * rows.rows * rows.slot + (i64(READINGS) * rows.rows + 1) / 2; }
};
// 16 bytes to shared memory, and to memory, that none reads after: they are the first to make room in the L2 cache.
__device__ inline void copy_once(unsigned to, const void* from) {
    asm volatile("{\n"
                 ".reg .b64 first;\n"
                 "createpolicy.fractional.L2::evict_first.b64 first, 1.0;\n"
                 "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, first;\n"
                 "}" :: "r"(to), "l"(from) : "memory");
}
template <typename V> __device__ inline void write_once(void* to, const V& vector) {
    const Words<V> values(vector);
    asm volatile("{\n"
                 ".reg .b64 first;\n"
                 "createpolicy.fractional.L2::evict_first.b64 first, 1.0;\n"
                 "st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, first;\n"
                 "}" :: "l"(to), "r"(values.at[0]), "r"(values.at[1]), "r"(values.at[2]), "r"(values.at[3]) : "memory");
}
// The part of a row in reading R, of which `get` has that of a thread in this block's segment: the last block to arrive puts all together.
template <int R, int READINGS, typename Part, typename Walk, typename Get> __device__ inline Part part_of_row(Walk& walk, Get get) {
    constexpr int COUNT = Words<Part>::COUNT;
    const Cached<READINGS, typename Walk::Layout> cached{walk.rows, i64(walk.row)};
    if (walk.now < 2 * R) return Part();
    if (walk.now > 2 * R) {
        __shared__ unsigned heard[COUNT];
        if (threadIdx.x == 0) {
            const Words<Part> words(Told<Part>(cached.told(R)).heard());
            for (int k = 0; k < COUNT; k++) heard[k] = words.at[k];
        }
        __syncthreads();
        return walk.load(heard, Part());
    }
    const Part part = walk.team(get());
    __shared__ bool last;
    if (threadIdx.x == 0) {
        walk.save(cached.parts() + i64(walk.segment) * COUNT, part);
        __threadfence();
        last = atomicAdd(cached.arrived(R), 1u) == unsigned(walk.rows.segments) - 1;
    }
    __syncthreads();
    if (!last) return part;
    __threadfence();
    const volatile unsigned* parts = cached.parts();
    const Part whole = walk.all([&](typename Walk::Place s) { return walk.load(parts + i64(s) * COUNT, Part()); }, false);
    if (threadIdx.x == 0) tell(cached.told(R), whole);
    return whole;
}
