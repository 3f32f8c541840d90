// Walks along long rows, of which blocks take tiles, for kernels that scan.
#pragma once
#include "kgen_scans.cuh"
#include "kgen_told.cuh"

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
        dependency_synchronize();
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
        } else if constexpr (BYTES > 16) {  // of eight bytes an element, beside narrower ones
            send<16>(place, p);
            send<BYTES - 16>(place + 16, static_cast<const unsigned char*>(p) + 16);
        } else {
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(to), "l"(p), "n"(BYTES) : "memory");
        }
    }
    __device__ static void arrived() { asm volatile("cp.async.wait_group %0;" :: "n"(0) : "memory"); }
};

// As `Along`, where blocks take tiles. STEP 0: a launch that clears what they are told in.
template <int THREADS, int BLOCKS, int VEC, int PARTS, bool BACK, u64 NEAR, u64 EVEN, int STEP, int RR, int K, typename Index>
struct Chained : Taking<Along<THREADS, BLOCKS, THREADS, VEC, PARTS, 1, BACK, NEAR, EVEN, RR, K, Index>, Index> {
    using Under = Along<THREADS, BLOCKS, THREADS, VEC, PARTS, 1, BACK, NEAR, EVEN, RR, K, Index>;
    using Took = Taking<Under, Index>;
    using typename Under::Layout, typename Took::Tile;
    using Under::EACH, Under::TILE, Took::STAGES;
    using Took::Took;
    static constexpr int GROUP = 64;
    static constexpr bool CLEARS = STEP == 0;

    // Told are a tile's total, a group's, and what stands before a group of groups.
    __device__ static i64 groups(i64 of) { return (of + GROUP - 1) / GROUP; }
    template <typename P> __device__ static void clear(const Layout& rows) {
        const i64 count = rows.segments;
        ::clear<THREADS>(rows.work, rows.rows * (count + groups(count) + groups(groups(count))) * Words<P>::COUNT);
    }

    // Operand O: of neighbours the aligned vectors that a tile lies in go to shared memory, one more than it has.
    template <int O, typename T> struct Tiles {
        static constexpr unsigned BYTES = VEC * sizeof(T), SLOT = ((THREADS * PARTS + 1) * BYTES + 15) / 16 * 16;
        static constexpr bool SENT = BYTES % 4 == 0, WHOLE = SENT && (EVEN >> O & 1);
        const T* p;
        unsigned memory;

        __device__ Tiles(Chained& walk, const T* p) : p(p), memory(walk.memory) {
            if (near(walk)) walk.memory += STAGES * SLOT;  // what stands still has no place there
            send(walk, walk.after, 1);
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
        __device__ static bool near(const Chained& walk) { return SENT && ((NEAR >> O & 1) || walk.rows.step[O] == 1); }
        __device__ void send(const Chained& walk, const Tile& tile, unsigned by) {
            if (!walk.there(tile) || !near(walk)) return;
            Index at_row[K];
            places_of(walk.rows.row_size, walk.rows.row_stride, tile.row, at_row);
            const i64 n = walk.rows.n, from = i64(tile.segment) * TILE;
            const T* low = p + at_row[O];  // of the aligned vector in which the tile's lowest element lies
            const unsigned over = WHOLE ? 0 : unsigned((u64(low) / sizeof(T) + (BACK ? n : 0)) % VEC);
            const unsigned to = memory + walk.slot(by) * SLOT;
            #pragma unroll
            for (int v = 0; v <= (WHOLE ? PARTS - 1 : PARTS); v++) {
                const int number = v * THREADS + int(threadIdx.x);
                if (v == PARTS && threadIdx.x > 0) break;
                const i64 begin = (BACK ? n - from - i64(number + WHOLE) * VEC : from + i64(number) * VEC) - over;
                if (begin >= n || begin <= -VEC) continue;
                Took::template send<BYTES>(to + number * BYTES, low + begin);
            }
        }
        __device__ Vector<T, EACH> take(Chained& walk) {
            Vector<T, EACH> all;
            if (walk.telling) {
                walk.arrived();
                send(walk, walk.later, 2);
                if constexpr (!WHOLE) __syncthreads();
            }
            const unsigned from = memory + walk.slot(walk.telling ? 1 : 0) * SLOT;
            const T* own = p + walk.at_row[O];
            const unsigned over = WHOLE ? 0 : unsigned((u64(own) / sizeof(T) + (BACK ? walk.rows.n : 0)) % VEC);
            #pragma unroll
            for (int v = 0; v < PARTS; v++) {
                Vector<T, VEC> part = {};
                const unsigned number = v * THREADS + threadIdx.x;
                const Index i = walk.first + number * VEC;
                if (near(walk)) {
                    using Memory = typename Under::template Memory<T>;
                    if constexpr (WHOLE) {
                        const Memory one = *reinterpret_cast<const Memory*>(walk.memory_at(from + number * BYTES));
                        memcpy(&part, &one, sizeof(part));
                    } else if constexpr (SENT) {
                        const Memory low = *reinterpret_cast<const Memory*>(walk.memory_at(from + (number + BACK) * BYTES));
                        const Memory high = *reinterpret_cast<const Memory*>(walk.memory_at(from + (number + !BACK) * BYTES));
                        part = shifted<T, VEC>(low, high, over);
                    }
                } else {
                    #pragma unroll
                    for (int k = 0; k < VEC; k++) {
                        if (i + k < walk.rows.n) part.at[Under::at(k)] = own[walk.place(i + k) * walk.rows.step[O]];
                    }
                }
                #pragma unroll
                for (int k = 0; k < VEC; k++) all.at[v * VEC + k] = part.at[k];
            }
            return all;
        }
    };

    template <typename P> using Before = typename Under::template Before<P>;
    template <typename P, typename Join> struct Carried {
        Before<P> kept, told;  // within their tiles: of the one that is stored next, and of the one behind it
        P kept_total, told_total, start;
        const P none;
        Join join;

        __device__ Carried(const P& none, Join join) : kept_total(none), told_total(none), start(none), none(none), join(join) {}
        // Makes a thread's elements what each has joined to those before it in its vector, and gives what stands before that: while the walk
        // tells, in the tile alone.
        __device__ Before<P> prefix(Chained& walk, P (&tile)[EACH]) {
            #pragma unroll
            for (int k = 1; k < EACH; k++) {
                if (k % VEC) tile[k] = join(tile[k - 1], tile[k]);
            }
            if (walk.telling) {
                if (threadIdx.x == 0) walk.ticket(walk.round) = walk.next_ticket;
                kept = told, kept_total = told_total;
                told_total = warps_before<THREADS / 32, VEC, PARTS>(tile, told.of, walk.round % 2, none, join);
                const bool goes_on = walk.segment + 1 < walk.rows.segments;
                if (goes_on && threadIdx.x == 0) tell(walk.rows.work, i64(walk.row) * walk.rows.segments + walk.segment, told_total);
                if (!walk.there(walk.own)) kept = told, kept_total = told_total;  // it may be stored next
                return told;
            }
            Before<P> found;
            #pragma unroll
            for (int v = 0; v < PARTS; v++) found.of[v] = join(start, kept.of[v]);
            kept = told, kept_total = told_total;
            return found;
        }
        // Before a tile is stored: what stands before it.
        __device__ void hear(const Chained& walk) {
            if (walk.telling) return;
            __shared__ Words<P> starts[2];  // two, so that one barrier is enough
            if (threadIdx.x < 32) heard(walk, starts[walk.round % 2]);
            __syncthreads();
            start = starts[walk.round % 2];
        }
        // A warp hears it, and tells of a group of tiles that ends with this one.
        __device__ void heard(const Chained& walk, Words<P>& start) {
            const i64 rows = walk.rows.rows, row = walk.row, count = walk.rows.segments, each = groups(count);
            const i64 segment = walk.segment, group = segment / GROUP, whole = group / GROUP;
            const i64 of_groups = rows * count + row * each, of_wholes = rows * (count + each) + row * groups(each);
            unsigned* work = walk.rows.work;
            Asked tiles(work, row * count + group * GROUP, int(segment % GROUP)), groups(work, of_groups + whole * GROUP, int(group % GROUP));
            Told<P> asked;
            if (whole > 0) asked = Told<P>(work, of_wholes + whole);
            const bool ends = segment + 1 < count && segment % GROUP == GROUP - 1 && threadIdx.x == 0;
            tiles.join_all(none, join);
            const P all = join(tiles.eights, join(tiles.rest, kept_total));
            if (ends) tell(work, of_groups + group, all);  // before it waits for others' to be told
            groups.join_all(none, join);
            const P before = whole > 0 ? asked.heard() : none;
            if (threadIdx.x == 0) start = Words<P>(join(join(join(join(before, groups.eights), groups.rest), tiles.eights), tiles.rest));
            if (ends && group % GROUP == GROUP - 1) tell(work, of_wholes + whole + 1, join(before, join(groups.eights, join(groups.rest, all))));
        }
        // The first of what is told of GROUP neighbours, of which each lane asks for two: joined are whole eights, one by one, and the rest.
        struct Asked {
            static constexpr int SOME = 8, LANES = SOME / 2;
            Told<P> two[2];
            P eights, rest;
            int count;

            __device__ Asked(const unsigned* work, i64 at, int count) : count(count) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int of = 2 * int(threadIdx.x) + e;
                    if (of < count) two[e] = Told<P>(work, at + of);
                }
            }
            __device__ void join_all(const P& none, Join join) {
                P own[2] = {none, none};
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                    if (2 * int(threadIdx.x) + e < count) own[e] = two[e].heard();
                }
                P last = none;
                #pragma unroll
                for (int s = 0; s < SOME; s++) {
                    const P one = lane_of<LANES>(own[s % 2], s / 2);
                    if (int(threadIdx.x) / LANES * SOME + s < count) last = join(last, one);
                }
                eights = none;
                #pragma unroll
                for (int g = 0; g < GROUP / SOME; g++) {
                    const P one = lane_of<32>(last, g * LANES);
                    if (g < count / SOME) eights = join(eights, one);
                }
                rest = lane_of<32>(last, count / SOME * LANES);
            }
        };
    };
    template <typename P, typename Join> __device__ Carried<P, Join> carried(const P& none, Join join) const { return {none, join}; }
};
