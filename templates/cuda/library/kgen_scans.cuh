// Walks along rows, for kernels that scan.
#pragma once
#include "kgen_memory.cuh"

// Rows in memory: how many, how many elements each has, how far these lie apart in each of K operands. The rows' dims are merged, outermost
// first. A segment has `span` tiles; where blocks share a row, `work` has the total of each of its segments.
template <int RR, int K, typename Index> struct Lines {
    Index rows, n, segments, span;
    Index row_size[RR], row_stride[K][RR], step[K];
    unsigned* work;
};

// The word of the lane that is `by` before this one, or of lane number `of`, of WIDTH neighbours.
template <int WIDTH, typename P> __device__ inline P lane_before(const P& p, int by) {
    Words<P> words(p);
    #pragma unroll
    for (int w = 0; w < words.COUNT; w++) words.at[w] = __shfl_up_sync(0xffffffffu, words.at[w], by, WIDTH);
    return words;
}
template <int WIDTH, typename P> __device__ inline P lane_of(const P& p, int of) {
    Words<P> words(p);
    #pragma unroll
    for (int w = 0; w < words.COUNT; w++) words.at[w] = __shfl_sync(0xffffffffu, words.at[w], of, WIDTH);
    return words;
}

// How the threads of a block go along rows: teams of TEAM threads take a row each, tile by tile, and a thread VEC neighbours of a tile. A team's
// threads are neighbours; where rows lie side by side (ASIDE), a thread's neighbours take the rows beside its own. BACK: from the last
// element to the first. NEAR and EVEN have a bit for each operand whose elements are known to be neighbours along a row, and whose rows are
// whole aligned vectors. A team takes all segments of its row; or, if STEP is not -1, a team takes one, in two launches: for the totals of all
// segments, and for what stands at each element. The order in which a row's elements are joined depends on TEAM, VEC and the tiles of a
// segment alone.
template <int THREADS_, int BLOCKS_, int TEAM, int VEC_, int AHEAD, bool ASIDE, bool BACK, u64 NEAR, u64 EVEN, int STEP, int RR, int K, typename Index>
struct Along {
    static constexpr int THREADS = THREADS_, BLOCKS = BLOCKS_, VEC = VEC_, TEAMS = THREADS / TEAM, WIDTH = ASIDE ? 1 : TEAM < 32 ? TEAM : 32;
    static constexpr bool TOTALS = STEP == 0;
    static constexpr Index TILE = Index(TEAM) * VEC;
    using Layout = Lines<RR, K, Index>;

    const Layout& rows;
    Index row, segment = 0, first, last, at_row[K];
    unsigned lane, turn = 0, tiles = 0;
    bool inside;

    __device__ explicit Along(const Layout& rows) : rows(rows), lane(ASIDE ? threadIdx.x / TEAMS : threadIdx.x % TEAM) {
        Index block = blockIdx.x;
        if constexpr (STEP >= 0) {
            segment = block % rows.segments;
            block /= rows.segments;
        }
        row = block * TEAMS + (ASIDE ? threadIdx.x % TEAMS : threadIdx.x / TEAM);
        inside = row < rows.rows;
        if (!inside) row = rows.rows - 1;  // reads what another team reads, writes nothing
        places_of(rows.row_size, rows.row_stride, row, at_row);
        first = segment * rows.span * TILE;
        last = STEP < 0 || rows.n - first < rows.span * TILE ? rows.n : first + rows.span * TILE;
    }
    // Where the total of a segment of the row lies.
    __device__ Index total(Index of) const { return ASIDE ? of * rows.rows + row : row * rows.segments + of; }
    // A tile after the other.
    __device__ bool more() const { return first < last; }
    __device__ void next() { first += TILE; }

    // Where the thread's k-th element of a tile stands in a vector, and its place. What stands behind a row's end is joined to nothing.
    __device__ static constexpr int at(int k) { return BACK ? VEC - 1 - k : k; }
    __device__ Index place(Index i) const { return BACK ? rows.n - 1 - i : i; }
    template <int O> __device__ i64 position(int k) const { return i64(at_row[O] + place(first + lane * VEC + k) * rows.step[O]); }

    // Vectors on their way are words: of halves of them each would have a register of its own.
    template <typename T> using Held = Words<Vector<T, VEC>>;
    template <typename T> using Memory = Vector<unsigned, Held<T>::COUNT>;
    template <int O, typename T> static constexpr bool WHOLE = (EVEN >> O & 1) && sizeof(Vector<T, VEC>) % 4 == 0;
    template <typename T> __device__ static void whole(T* p, const Held<T>& values) { *reinterpret_cast<Memory<T>*>(p) = memory<T>(values); }
    // The same where words were put together: of these the compiler makes as many stores.
    template <typename T> __device__ static void together(T* p, const Held<T>& values) {
        if constexpr (Held<T>::COUNT == 4) {
            asm volatile("st.v4.u32 [%0], {%1, %2, %3, %4};"
                         :: "l"(p), "r"(values.at[0]), "r"(values.at[1]), "r"(values.at[2]), "r"(values.at[3]) : "memory");
        } else {
            whole(p, values);
        }
    }
    template <typename T> __device__ static Memory<T> memory(const Held<T>& values) {
        Memory<T> made;
        memcpy(&made, &values, sizeof(made));
        return made;
    }

    // The thread's elements of the tile that begins with element `from`.
    template <int O, typename T> __device__ Held<T> load(const T* p, Index from) const {
        const Index i = from + lane * VEC, step = rows.step[O];
        if constexpr (WHOLE<O, T>) {
            Held<T> found;
            #pragma unroll
            for (int w = 0; w < found.COUNT; w++) found.at[w] = 0;
            if (from < last && i < rows.n) {
                const Memory<T> all = *reinterpret_cast<const Memory<T>*>(p + (BACK ? rows.n - VEC - i : i));
                #pragma unroll
                for (int w = 0; w < found.COUNT; w++) found.at[w] = all.at[w];
            }
            return found;
        } else {
            Vector<T, VEC> found = {};
            if (from >= last || i >= rows.n) return Held<T>(found);
            if (rows.n - i < VEC) {
                #pragma unroll
                for (int k = 0; k < VEC; k++) {
                    if (i + k < rows.n) found.at[at(k)] = p[place(i + k) * step];
                }
                return Held<T>(found);
            }
            const T* low = p + place(BACK ? i + VEC - 1 : i) * step;
            if constexpr (ASIDE) {
                #pragma unroll
                for (int k = 0; k < VEC; k++, low += step) found.at[k] = *low;
                return Held<T>(found);
            }
            if constexpr (VEC * sizeof(T) % 4 == 0) {
                if ((NEAR >> O & 1) || step == 1) return Held<T>(shifted<T, VEC>(low, unsigned(u64(low) / sizeof(T) % VEC)));
            }
            if (step == 0) {
                const T one = *low;
                #pragma unroll
                for (int k = 0; k < VEC; k++) found.at[k] = one;
                return Held<T>(found);
            }
            #pragma unroll
            for (int k = 0; k < VEC; k++) found.at[k] = low[k * step];
            return Held<T>(found);
        }
    }
    template <int O, typename T> __device__ void store(T* p, const Vector<T, VEC>& values) const {
        const Index i = first + lane * VEC, step = rows.step[O];
        p += at_row[O];
        if constexpr (WHOLE<O, T>) {
            if (inside && i < rows.n) whole(p + (BACK ? rows.n - VEC - i : i), Held<T>(values));
            return;
        }
        if constexpr (WIDTH > 1 && VEC * sizeof(T) % 4 == 0) {
            if ((NEAR >> O & 1) || step == 1) return along(p, i, Held<T>(values));
        }
        if (!inside || i >= rows.n) return;
        if (rows.n - i >= VEC) {
            T* low = p + place(BACK ? i + VEC - 1 : i) * step;
            #pragma unroll
            for (int k = 0; k < VEC; k++, low += step) *low = values.at[k];
            return;
        }
        #pragma unroll
        for (int k = 0; k < VEC; k++) {
            if (i + k < rows.n) p[place(i + k) * step] = values.at[at(k)];
        }
    }
    // Neighbours that begin within a vector, as one of neighbouring lanes: each lane's and what the lane below it in memory has more. What
    // the first and the last of WIDTH lanes, and those at a row's end, have besides goes by elements.
    template <typename T> __device__ void along(T* p, Index i, const Held<T>& values) const {
        const i64 begin = BACK ? i64(rows.n) - VEC - i64(i) : i64(i);
        const unsigned over = unsigned((u64(p) / sizeof(T) + u64(begin)) % VEC), l = threadIdx.x % WIDTH;
        const auto whole_at = [&](Index j) { return j < rows.n && rows.n - j >= VEC; };
        const Held<T> near = BACK ? lane_of<WIDTH>(values, l + 1 < WIDTH ? l + 1 : l) : lane_before<WIDTH>(values, 1);
        const bool first_lane = l == (BACK ? WIDTH - 1 : 0), last_lane = l == (BACK ? 0 : WIDTH - 1);
        const bool full = whole_at(i), lower = !first_lane && (!BACK || whole_at(i + VEC)), upper = !last_lane && (BACK || whole_at(i + VEC));
        if (!inside) return;
        const bool spans = full && lower && over > 0;
        Held<T> made = values;
        if (spans) made = Held<T>(shifted<T, VEC>(memory<T>(near), memory<T>(values), VEC - over));
        if (spans || (full && over == 0)) together(p + begin - over, made);
        if (over == 0 && full) return;
        const Vector<T, VEC> own = values;
        const int from = full && lower ? VEC - int(over) : 0, to = full && upper ? VEC - int(over) : VEC;
        #pragma unroll
        for (int k = 0; k < VEC; k++) {
            if (k >= from && k < to && (full || (BACK ? begin + k >= 0 : i + k < rows.n))) p[begin + k] = own.at[k];
        }
    }

    // Operand O of a row, some tiles of it on their way.
    template <int O, typename T> struct Tiles {
        const T* p;
        Held<T> held[AHEAD];

        __device__ Tiles(const Along& walk, const T* base) : p(base + walk.at_row[O]) {
            #pragma unroll
            for (int k = 0; k < AHEAD; k++) held[k] = walk.template load<O>(p, walk.first + k * TILE);
        }
        __device__ Vector<T, VEC> take(const Along& walk) {
            const Held<T> now = held[0];
            #pragma unroll
            for (int k = 1; k < AHEAD; k++) held[k - 1] = held[k];
            held[AHEAD - 1] = walk.template load<O>(p, walk.first + AHEAD * TILE);
            return now;
        }
    };

    // What stands before a tile: the segments before its own, and the tiles of that. `join(own, next)` joins neighbours.
    template <typename P, typename Join> struct Carried {
        P before, own;
        const P none;
        Join join;

        __device__ Carried(const Along& walk, const P& none, Join join) : before(none), own(none), none(none), join(join) {
            if constexpr (STEP == 1) {
                const Words<P>* totals = reinterpret_cast<const Words<P>*>(walk.rows.work) + walk.total(0);
                const Index apart = walk.total(1) - walk.total(0);
                #pragma unroll 8
                for (Index s = 0; s < walk.segment; s++) {
                    const Words<P> one = totals[s * apart];
                    before = join(before, P(one));
                }
            }
        }
        // Makes a thread's elements what each has joined to those before it in the tile that the thread has, and gives what stands before all
        // of these.
        __device__ P prefix(Along& walk, P (&tile)[VEC]) {
            #pragma unroll
            for (int k = 1; k < VEC; k++) tile[k] = join(tile[k - 1], tile[k]);
            P all = tile[VEC - 1], left = none;
            if constexpr (WIDTH > 1) {
                const int l = threadIdx.x % WIDTH;
                #pragma unroll
                for (int d = 1; d < WIDTH; d *= 2) {
                    const P lower = lane_before<WIDTH>(all, d);
                    if (l >= d) all = join(lower, all);
                }
                const P lower = lane_before<WIDTH>(all, 1);
                if (l > 0) left = lower;
                if constexpr (TEAM <= 32) all = lane_of<WIDTH>(all, WIDTH - 1);
            }
            if constexpr (ASIDE && TEAM > 1) {
                __shared__ Words<P> totals[2][TEAM][TEAMS];  // two, so that one barrier is enough
                const int team = threadIdx.x % TEAMS;
                totals[walk.turn][walk.lane][team] = Words<P>(all);
                __syncthreads();
                all = totals[walk.turn][0][team];
                #pragma unroll
                for (int l = 1; l < TEAM; l++) {
                    if (walk.lane == l) left = all;
                    all = join(all, P(totals[walk.turn][l][team]));
                }
                walk.turn ^= 1;
            } else if constexpr (TEAM > 32) {
                constexpr int WARPS = TEAM / 32;
                __shared__ Words<P> totals[2][WARPS];
                const int l = threadIdx.x % 32, warp = threadIdx.x / 32;
                if (l == 31) totals[walk.turn][warp] = Words<P>(all);
                __syncthreads();
                P each = none;
                if (l < WARPS) each = totals[walk.turn][l];
                #pragma unroll
                for (int d = 1; d < WARPS; d *= 2) {
                    const P lower = lane_before<32>(each, d);
                    if (l >= d) each = join(lower, each);
                }
                all = lane_of<32>(each, WARPS - 1);
                const P lower = lane_of<32>(each, warp > 0 ? warp - 1 : 0);
                if (warp > 0) left = l > 0 ? join(lower, left) : lower;
                walk.turn ^= 1;
            }
            const P found = join(join(before, own), left);
            own = join(own, all);
            if (STEP < 0 && ++walk.tiles == walk.rows.span) {
                walk.tiles = 0;
                before = join(before, own);
                own = none;
            }
            return found;
        }
        // The end of a launch for totals.
        __device__ void leave(const Along& walk) const {
            if (TOTALS && walk.inside && walk.lane == 0) {
                reinterpret_cast<Words<P>*>(walk.rows.work)[walk.total(walk.segment)] = Words<P>(own);
            }
        }
    };
    template <typename P, typename Join> __device__ Carried<P, Join> carried(const P& none, Join join) const { return {*this, none, join}; }
};
