// What blocks that share rows tell one another.
#pragma once
#include "kgen_memory.cuh"

// What blocks tell one another in memory that was cleared: words, each beside a mark that it is there.
template <typename P> struct Told {
    static constexpr int COUNT = Words<P>::COUNT;
    const volatile u64* from;
    u64 found[COUNT];

    Told() = default;
    __device__ Told(const unsigned* work, i64 at) : from(reinterpret_cast<const u64*>(work) + 1 + at * COUNT) {
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
template <typename P> __device__ inline void tell(unsigned* work, i64 at, const P& value) {
    const Words<P> words(value);
    volatile u64* to = reinterpret_cast<u64*>(work) + 1 + at * words.COUNT;
    #pragma unroll
    for (int w = 0; w < words.COUNT; w++) to[w] = 1ull << 32 | words.at[w];
}
template <int THREADS> __device__ inline void clear(unsigned* work, i64 words) {
    for (i64 i = i64(blockIdx.x) * THREADS + threadIdx.x; i <= words; i += i64(gridDim.x) * THREADS) reinterpret_cast<u64*>(work)[i] = 0;
}

// A walk whose blocks take the next tile of any rows: a ticket says which, the first tiles of all rows before the second ones. A block tells a
// tile's total as soon as it has read that; then it hears what stands before the tile that it told of last, of blocks whose tickets are older,
// and stores that. The tile behind these is on its way meanwhile.
template <typename Under, typename Index> struct Taking : Under {
    static constexpr int STAGES = 3;
    struct Tile { Index row, segment; };  // of the rows from `row` on that a block takes side by side

    Index segment;
    Tile own, after, later;  // what is stored next, what is told next, what is sent for
    unsigned stage = 0, round = 0, memory = 0, next_ticket;
    bool telling = true;

    __device__ explicit Taking(const typename Under::Layout& rows) : Under(rows) {
        own = {rows.rows, 0}, after = tile(taken()), later = tile(taken());
        if (threadIdx.x == 0) next_ticket = atomicAdd(rows.work, 1u);
        go();
    }
    __device__ static unsigned& ticket(unsigned round) {
        __shared__ unsigned tickets[2];  // two, so that no barrier is needed behind where one is read
        return tickets[round % 2];
    }
    __device__ unsigned taken() {
        if (threadIdx.x == 0) ticket(round) = atomicAdd(this->rows.work, 1u);
        __syncthreads();
        return ticket(round++);
    }
    __device__ Tile tile(Index ticket) const {
        const Index blocks = (this->rows.rows + Under::SIDE - 1) / Under::SIDE, segment = ticket / blocks;
        return segment < this->rows.segments ? Tile{(ticket - segment * blocks) * Under::SIDE, segment} : Tile{this->rows.rows, 0};
    }
    __device__ bool there(const Tile& t) const { return t.row < this->rows.rows; }
    __device__ void go() {
        segment = telling ? after.segment : own.segment;  // as a choice of tiles they would be on the stack
        Under::go(telling ? after.row : own.row, segment * Under::TILE);
    }
    // Each tile is told, and stored a turn later; one that is not there is behind all others.
    __device__ bool more() const { return telling ? there(after) : there(own); }
    __device__ bool tells() const { return telling; }
    __device__ void next() {
        if (telling) asm volatile("cp.async.commit_group;" ::: "memory");
        if (telling && there(own)) {
            telling = false;
        } else {
            stage = stage == STAGES - 1 ? 0 : stage + 1;
            own = after, after = later;
            later = there(own) ? tile(ticket(round)) : own;
            if (threadIdx.x == 0 && there(after)) next_ticket = atomicAdd(this->rows.work, 1u);
            round++;
            telling = there(after);
        }
        go();
    }
    // The stage of a tile that is so many behind the one that is stored next, and what lies there.
    __device__ unsigned slot(unsigned by) const { return stage + by < STAGES ? stage + by : stage + by - STAGES; }
    __device__ static unsigned char* memory_at(unsigned place) {
        extern __shared__ __align__(128) unsigned char row_memory[];
        return row_memory + place;
    }
    // Send for the BYTES from p on.
    template <int BYTES> __device__ static void send(unsigned place, const void* p) {
        const unsigned to = unsigned(__cvta_generic_to_shared(memory_at(place)));
        if constexpr (BYTES == 16) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(p) : "memory");
        } else {
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(to), "l"(p), "n"(BYTES) : "memory");
        }
    }
    __device__ static void arrived() { asm volatile("cp.async.wait_group %0;" :: "n"(0) : "memory"); }
};
