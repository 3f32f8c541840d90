// What the threads of a team tell one another, and rows that lie side by side, of which a thread takes some abreast.
#pragma once
#include "kgen_partials.cuh"

// The parts of a team's threads as one, in each of them.
template <int TEAM, bool ACROSS, typename Walk, typename Part> __device__ inline Part part_of_team(Walk& walk, Part part) {
    constexpr int THREADS = Walk::THREADS, WARPS = THREADS > 512 ? 32 : THREADS > 256 ? 16 : THREADS > 128 ? 8 : THREADS > 64 ? 4 : 2;
    constexpr int COUNT = Words<Part>::COUNT, SLOTS = ACROSS ? THREADS : WARPS;
    constexpr int TURNS = SLOTS * COUNT > 2048 ? 1 : 2;
    if constexpr (TEAM == 1) {
        return part;
    } else if constexpr (!ACROSS && TEAM > 0 && TEAM <= 32) {
        return walk.template warp<TEAM>(part);
    } else {
        __shared__ unsigned parts[TURNS][COUNT][SLOTS];
        auto& mine = parts[walk.turn % TURNS];
        if constexpr (!ACROSS) part = walk.template warp<32>(part);
        if (ACROSS || threadIdx.x % 32 == 0) {
            const Words<Part> words(part);
            #pragma unroll
            for (int k = 0; k < COUNT; k++) mine[k][ACROSS ? threadIdx.x : threadIdx.x / 32] = words.at[k];
        }
        __syncthreads();
        Words<Part> words;
        Part whole;
        if constexpr (ACROSS) {
            const unsigned teams = walk.teams();
            whole = walk.template whole_of<TEAM, Part>([&](int t, int k) { return mine[k][t * teams + threadIdx.x % teams]; });
        } else {
            const unsigned t = threadIdx.x % WARPS;
            if (t * 32 < walk.size) {
                #pragma unroll
                for (int k = 0; k < COUNT; k++) words.at[k] = mine[k][t];
                whole = words;
            }
            whole = walk.template warp<WARPS>(whole);
        }
        if constexpr (TURNS == 1) __syncthreads();
        walk.turn++;
        return whole;
    }
}

// What a thread adds up of many parts: sixteen of them, sixteen of those, and the rest.
template <typename Part> struct Sixteens {
    Part few, many, all;
    unsigned count = 0;

    __device__ void add(const Part& part) {
        few.add(part);
        if (++count % 16 != 0) return;
        many.add(few);
        few = Part();
        if (count % 256 != 0) return;
        all.add(many);
        many = Part();
    }
    __device__ Part whole() {
        many.add(few);
        all.add(many);
        return all;
    }
};
// The parts of a row's segments that are a thread's, added up in their order. It asks for some before it waits for the first.
template <typename Part, typename Walk, typename Get> __device__ inline void add_ahead(const Walk& walk, Sixteens<Part>& sums, Get get) {
    constexpr int AHEAD = Words<Part>::COUNT > 8 ? 4 : Words<Part>::COUNT > 4 ? 8 : 16;
    for (auto first = walk.lane; first < walk.rows.segments; first += AHEAD * walk.size) {
        Part ahead[AHEAD];
        #pragma unroll
        for (int k = 0; k < AHEAD; k++) if (first + k * walk.size < walk.rows.segments) ahead[k] = get(first + k * walk.size);
        #pragma unroll
        for (int k = 0; k < AHEAD; k++) if (first + k * walk.size < walk.rows.segments) sums.add(ahead[k]);
    }
}

// The parts of the rows that a thread takes abreast, from some vectors up to an end, in shared memory: `add` adds some vectors to one.
template <typename Part, typename Parts, typename Walk, typename Add, typename Index>
__device__ inline void add_abreast(Walk& walk, Parts& parts, Add add, Index first, Index end) {
    constexpr int ABREAST = Walk::ABREAST;
    Part part[ABREAST];
    for (Index base = first; base < end; base += walk.size * Walk::TAKEN) {
        const auto added = [&](bool full) {
            #pragma unroll
            for (int k = 0; k < ABREAST; k++) walk.abreast(k), add(part[k], base, end, full);
        };
        if (walk.full(base, end)) added(true);
        else added(false);
    }
    walk.abreast(0);
    #pragma unroll
    for (int k = 0; k < ABREAST; k++) {
        const Words<Part> words(part[k]);
        #pragma unroll
        for (int w = 0; w < words.COUNT; w++) parts[w][k][threadIdx.x] = words.at[w];
    }
    __syncthreads();
}
// COUNT of a team's parts of its k-th row as one, every EVERY-th from `first` on.
template <int COUNT, int EVERY, typename Part, typename Parts, typename Walk>
__device__ inline Part some_of(const Walk& walk, const Parts& parts, unsigned k, unsigned first) {
    const unsigned teams = walk.teams(), at = first * teams + threadIdx.x % teams;
    return walk.template whole_of<COUNT, Part>([&](int t, int w) { return parts[w][k][at + t * EVERY * teams]; });
}
template <typename Part, typename Parts, typename Walk> __device__ inline void put_part(const Walk& walk, Parts& parts, unsigned k, unsigned t, const Part& part) {
    const Words<Part> words(part);
    #pragma unroll
    for (int w = 0; w < words.COUNT; w++) parts[w][k][t * walk.teams() + threadIdx.x % walk.teams()] = words.at[w];
}

// Of many threads some put eight parts together before a row's are, however many rows a thread takes.
template <int TEAM> constexpr int few_of = TEAM > 8 ? 8 : 1;
template <int TEAM, typename Part, typename Walk, typename Parts> __device__ inline void put_few_together(const Walk& walk, Parts& parts) {
    constexpr int FEW = few_of<TEAM>;
    if constexpr (FEW > 1) {
        for (unsigned k = walk.lane; k < Walk::ABREAST * (TEAM / FEW); k += walk.size) {
            const unsigned first = k / Walk::ABREAST * FEW;
            put_part(walk, parts, k % Walk::ABREAST, first, some_of<FEW, 1, Part>(walk, parts, k % Walk::ABREAST, first));
        }
        __syncthreads();
    }
}

// In the reading that is a launch's own the parts of a segment are stored. A thread puts the parts of a row together, each of a team another's.
template <int TEAM, typename Part, typename Walk, typename Add> __device__ inline Part parts_abreast(Walk& walk, Add add) {
    constexpr int COUNT = Words<Part>::COUNT;
    __shared__ unsigned parts[COUNT][Walk::ABREAST][Walk::THREADS];
    constexpr int FEW = few_of<TEAM>;
    add_abreast<Part>(walk, parts, add, walk.segment * walk.rows.span, walk.end_of(walk.segment));
    put_few_together<TEAM, Part>(walk, parts);
    for (unsigned k = walk.lane; k < Walk::ABREAST; k += walk.size) {
        const Part whole = some_of<TEAM / FEW, FEW, Part>(walk, parts, k, 0);
        if (walk.inside) walk.save(walk.rows.work + (u64(walk.row + k) * walk.rows.segments + walk.segment) * COUNT, whole);
    }
    return Part();
}
// Of rows that stay in registers it is that of the row that a thread is at: with the first of them come those of all.
template <int TEAM, typename Part, typename Walk, typename Add> __device__ inline Part part_abreast(Walk& walk, Add add) {
    constexpr int ABREAST = Walk::ABREAST, COUNT = Words<Part>::COUNT, FEW = few_of<TEAM>;
    __shared__ unsigned parts[COUNT][ABREAST][Walk::THREADS];
    if (walk.column == 0) {
        add_abreast<Part>(walk, parts, add, typename Walk::Place(0), walk.vectors);
        put_few_together<TEAM, Part>(walk, parts);
        for (unsigned k = walk.lane; k < ABREAST; k += walk.size) {
            put_part(walk, parts, k, 0, some_of<TEAM / FEW, FEW, Part>(walk, parts, k, 0));
        }
        __syncthreads();
    }
    Words<Part> words;
    #pragma unroll
    for (int w = 0; w < COUNT; w++) words.at[w] = parts[w][walk.column][threadIdx.x % walk.teams()];
    return words;
}

// What an element adds to sums about a peak, added to these; rounded with them where it is.
template <typename Part, typename About, typename... X> __device__ inline void share_onto(Part& sums, const Part& top, const About& about, X... x) {
    sums.merge_sums(share(top, about, x...));
}
template <typename Part, typename F, typename... X> __device__ inline void share_onto(Part& sums, const Part& top, const Adding<F>& about, X... x) {
    about.add(sums, top, x...);
}

// An operand of rows that a thread takes abreast, which is read before the first of them, or WRITTEN behind the last.
template <typename Walk, int O, typename T, bool WRITTEN> struct Abreast {
    using Index = typename Walk::Place;
    static constexpr int COUNT = Walk::ABREAST;
    static constexpr bool EACH = !WRITTEN && Walk::template apart<O>();  // read anew for each row, as it is no vector
    T* p;
    Vector<T, EACH ? 1 : COUNT> at[Walk::TAKEN];
    int column = 0;
    unsigned had = 0;  // what has been read, where that stays

    __device__ Abreast(const Walk& walk, T* start) : p(walk.template start_of<O>(start)) {}
    // Where the element of the first row lies that chunk `c` is, and how far from it that of the next row.
    template <typename C> __device__ T* place(const Walk& walk, const C& c) const { return p + walk.offset(O, c.first); }
    __device__ Index step(const Walk& walk) const { return walk.rows.row_stride[O][Walk::DIMS - 1]; }
    template <typename C> __device__ void fetch(const Walk& walk, const C& c, int v) {
        if constexpr (EACH) {
            at[v].at[0] = place(walk, c)[Index(walk.column * step(walk))];
            return;
        }
        if (WRITTEN || walk.column > 0 || had >> v & 1) return;
        if constexpr (Walk::HOLDS) had |= 1u << v;
        const T* from = place(walk, c);
        if (walk.wide(O)) {
            if constexpr (!EACH) at[v] = *reinterpret_cast<const Vector<T, COUNT>*>(from);
        } else {
            #pragma unroll
            for (int k = 0; k < (EACH ? 1 : COUNT); k++) at[v].at[k] = from[Index(k * step(walk))];
        }
    }
    __device__ void take(const Walk& walk, int, int) { column = EACH ? 0 : walk.column; }
    __device__ decltype(auto) one(int v, int) {
        if constexpr (WRITTEN) return static_cast<T&>(at[v].at[column]);
        else return element(at[v], column);
    }
    __device__ Vector<T, 1> values(int v) const { return {{at[v].at[column]}}; }
    template <typename C> __device__ void put(const Walk& walk, const C& c, int v) {
        if (!WRITTEN || walk.column < COUNT - 1) return;
        T* to = place(walk, c);
        if (walk.wide(O)) {
            if constexpr (!EACH) *reinterpret_cast<Vector<T, COUNT>*>(to) = at[v];
        } else {
            #pragma unroll
            for (int k = 0; k < (EACH ? 1 : COUNT); k++) to[Index(k * step(walk))] = at[v].at[k];
        }
    }
    // Such rows are in no vectors of their own, outside of which elements would lie.
    __device__ T& one_loose(const Walk&, int) { return at[0].at[0]; }
    __device__ void put_loose(const Walk&, int) {}
};
