// Walks along rows, for kernels that scan.
#pragma once
#include "kgen_memory.cuh"

// Rows in memory: how many, how many elements each has, how far these lie apart in each of K operands. The rows' dims are merged, outermost
// first. A segment is a tile; where a block takes one, `work` has what blocks tell one another.
template <int RR, int K, typename Index> struct Lines {
    Index rows, n, segments;
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

// What stands before a lane's own in `all` among WIDTH neighbours; of that it makes what each has joined to those before it.
template <int WIDTH, typename P, typename Join> __device__ inline P lanes_before(P& all, const P& none, Join join) {
    P left = none;
    if constexpr (WIDTH > 1) {
        const int l = threadIdx.x % WIDTH;
        #pragma unroll
        for (int d = 1; d < WIDTH; d *= 2) {
            const P lower = lane_before<WIDTH>(all, d);
            if (l >= d) all = join(lower, all);
        }
        const P lower = lane_before<WIDTH>(all, 1);
        if (l > 0) left = lower;
    }
    return left;
}
// The same of the warps of a block and each of a thread's PARTS vectors, whose elements in `tile` are joined to those before them in their
// vector: what stands before each vector in the tile, in `found`. Gives the tile's total. Called again with another `turn`, 0 or 1.
template <int WARPS, int VEC, int PARTS, typename P, typename Join>
__device__ inline P warps_before(const P (&tile)[VEC * PARTS], P (&found)[PARTS], unsigned turn, const P& none, Join join) {
    constexpr int COUNT = PARTS * WARPS, SHARE = (COUNT + 31) / 32;
    __shared__ Words<P> totals[2][COUNT];  // two, so that one barrier is enough
    const int l = threadIdx.x % 32, warp = threadIdx.x / 32;
    #pragma unroll
    for (int v = 0; v < PARTS; v++) {
        P all = tile[v * VEC + VEC - 1];
        found[v] = lanes_before<32>(all, none, join);
        if (l == 31) totals[turn][v * WARPS + warp] = Words<P>(all);
    }
    __syncthreads();
    P own[SHARE];
    #pragma unroll
    for (int e = 0; e < SHARE; e++) {
        own[e] = none;
        if (l * SHARE + e < COUNT) own[e] = totals[turn][l * SHARE + e];
        if (e > 0) own[e] = join(own[e - 1], own[e]);
    }
    P last = own[SHARE - 1];
    const P left = lanes_before<32>(last, none, join);
    #pragma unroll
    for (int v = 0; v < PARTS; v++) {
        const int of = v * WARPS + warp;
        P lower = lane_of<32>(left, of / SHARE);
        #pragma unroll
        for (int e = 1; e < SHARE; e++) {
            const P more = lane_of<32>(own[e - 1], of / SHARE);
            if (of % SHARE == e) lower = join(lower, more);
        }
        found[v] = join(lower, found[v]);
    }
    return lane_of<32>(last, 31);
}

// What stands before a tile: of the tiles before it the whole groups of 4,096, joined one by one, then those of 512, of 64, of 8, then single
// ones. Blocks that share a row join them alike.
template <typename P> struct Levels {
    static constexpr int COUNT = 5, EACH = 8;
    P at[COUNT];
    unsigned tiles = 0;

    __device__ void begin(const P& none) {
        #pragma unroll
        for (int e = 0; e < COUNT; e++) at[e] = none;
    }
    template <typename Join> __device__ void add(const P& total, const P& none, Join join) {
        at[0] = join(at[0], total);
        if (++tiles % EACH) return;
        bool whole = true;
        #pragma unroll
        for (int e = 1, of = EACH; e < COUNT; e++, of *= EACH) {
            whole = whole && tiles % of == 0;
            if (whole) at[e] = join(at[e], at[e - 1]), at[e - 1] = none;
        }
    }
    template <typename Join> __device__ P before(Join join) const {
        P all = at[COUNT - 1];
        #pragma unroll
        for (int e = COUNT - 2; e >= 0; e--) all = join(all, at[e]);
        return all;
    }
};

// How the threads of a block go along rows: teams of TEAM neighbouring threads take a row each, tile by tile, and a thread PARTS times VEC
// neighbours of a tile; AHEAD tiles are on their way. BACK: from the last element to the first. NEAR and EVEN have a bit for each operand
// whose elements are known to be neighbours along a row, and whose rows are whole aligned vectors. The order in which a row's elements are
// joined depends on TEAM, VEC and PARTS alone.
template <int THREADS_, int BLOCKS_, int TEAM, int VEC_, int PARTS, int AHEAD, bool BACK, u64 NEAR, u64 EVEN, int RR, int K, typename Index>
struct Along {
    static constexpr int THREADS = THREADS_, BLOCKS = BLOCKS_, VEC = VEC_, EACH = VEC * PARTS, TEAMS = THREADS / TEAM;
    static constexpr int WIDTH = TEAM < 32 ? TEAM : 32, SIDE = 1;
    static constexpr bool CLEARS = false, KEEPS = !BACK && WIDTH == TEAM;
    static constexpr Index PART = Index(TEAM) * VEC, TILE = PART * PARTS;
    using Layout = Lines<RR, K, Index>;

    const Layout& rows;
    Index row, first, at_row[K];
    unsigned lane, turn = 0, kept[KEEPS ? K : 1][4];
    bool inside;

    __device__ explicit Along(const Layout& rows) : rows(rows), lane(threadIdx.x % TEAM) {
        go(Index(blockIdx.x) * TEAMS + threadIdx.x / TEAM, 0);
    }
    __device__ void go(Index to, Index from) {
        first = from;
        inside = to < rows.rows;
        row = inside ? to : rows.rows - 1;  // reads what another team reads, writes nothing
        places_of(rows.row_size, rows.row_stride, row, at_row);
    }
    // A tile after the other; whether only its total is wanted.
    __device__ bool more() const { return first < rows.n; }
    __device__ void next() { first += TILE; }
    __device__ static constexpr bool tells() { return false; }

    // Where the thread's k-th element of a tile stands in its vectors, and its place. What stands behind a row's end is joined to nothing.
    __device__ static constexpr int at(int k) { return BACK ? k / VEC * VEC + VEC - 1 - k % VEC : k; }
    __device__ Index place(Index i) const { return BACK ? rows.n - 1 - i : i; }
    template <int O> __device__ i64 position(int k) const {
        return i64(at_row[O] + place(first + k / VEC * PART + lane * VEC + k % VEC) * rows.step[O]);
    }

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

    // The thread's elements of the part that begins with element `from`; of neighbours that begin within a vector, the two aligned ones that
    // they lie in, which are put together when they are taken: until then nothing waits for them.
    template <int O, typename T> static constexpr int PAIR = WHOLE<O, T> || VEC * sizeof(T) % 4 ? 1 : 2;
    template <int O, typename T> struct Raw { Held<T> half[PAIR<O, T>]; };
    template <int O> __device__ bool near() const { return (NEAR >> O & 1) || rows.step[O] == 1; }
    template <typename T> __device__ unsigned over(const T* p) const { return unsigned((u64(p) / sizeof(T) + (BACK ? rows.n : 0)) % VEC); }
    template <typename T> __device__ static void read(Held<T>& to, const T* p, bool there) {
        #pragma unroll
        for (int w = 0; w < to.COUNT; w++) to.at[w] = 0;
        if (there) {
            const Memory<T> all = *reinterpret_cast<const Memory<T>*>(p);
            #pragma unroll
            for (int w = 0; w < to.COUNT; w++) to.at[w] = all.at[w];
        }
    }
    template <int O, typename T> __device__ Raw<O, T> load(const T* p, Index from) const {
        const Index i = from + lane * VEC, step = rows.step[O];
        const bool any = i < rows.n;
        Raw<O, T> raw;
        if constexpr (WHOLE<O, T>) {
            read(raw.half[0], p + (BACK ? rows.n - VEC - i : i), any);
            return raw;
        } else if constexpr (PAIR<O, T> == 2) {
            if (near<O>()) {
                const i64 low = (BACK ? i64(rows.n) - VEC - i64(i) : i64(i)) - over(p);
                read(raw.half[0], p + low, any && (!BACK || low > -VEC));
                read(raw.half[1], p + low + VEC, any && over(p) > 0 && low + VEC < i64(rows.n));
                return raw;
            }
        }
        Vector<T, VEC> found = {};
        if (any) {
            #pragma unroll
            for (int k = 0; k < VEC; k++) {
                if (i + k < rows.n) found.at[at(k)] = p[place(i + k) * step];
            }
        }
        raw.half[0] = Held<T>(found);
        return raw;
    }
    template <int O, typename T> __device__ Vector<T, VEC> taken(const T* p, const Raw<O, T>& raw) const {
        if constexpr (PAIR<O, T> == 2) {
            if (near<O>()) return shifted<T, VEC>(memory<T>(raw.half[0]), memory<T>(raw.half[1]), over(p));
        }
        return raw.half[0];
    }
    template <int O, typename T> __device__ void store(T* p, const Vector<T, EACH>& values) {
        #pragma unroll
        for (int v = 0; v < PARTS; v++) {
            Vector<T, VEC> one;
            #pragma unroll
            for (int k = 0; k < VEC; k++) one.at[k] = values.at[v * VEC + k];
            if (v == 0 || first + v * PART < rows.n) store<O>(p, one, first + v * PART);
        }
    }
    template <int O, typename T> __device__ void store(T* p, const Vector<T, VEC>& values, Index from) {
        const Index i = from + lane * VEC, step = rows.step[O];
        p += at_row[O];
        if constexpr (WHOLE<O, T>) {
            if (inside && i < rows.n) whole(p + (BACK ? rows.n - VEC - i : i), Held<T>(values));
            return;
        }
        if constexpr (WIDTH > 1 && VEC * sizeof(T) % 4 == 0) {
            if ((NEAR >> O & 1) || step == 1) return along<O>(p, i, Held<T>(values));
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
    // Neighbours that begin within a vector, as one of neighbouring lanes: each lane's and what the lane below it in memory has more. Where
    // WIDTH lanes take a row, the last one's next tile is the first one's: that keeps it. What else the first and the last lane, and those
    // at a row's end, have besides goes by elements.
    template <int O, typename T> __device__ void along(T* p, Index i, const Held<T>& values) {
        const i64 begin = BACK ? i64(rows.n) - VEC - i64(i) : i64(i);
        const unsigned over = unsigned((u64(p) / sizeof(T) + u64(begin)) % VEC), l = threadIdx.x % WIDTH;
        const auto whole_at = [&](Index j) { return j < rows.n && rows.n - j >= VEC; };
        Held<T> near = lane_of<WIDTH>(values, (BACK ? l + 1 : l + WIDTH - 1) % WIDTH);
        if constexpr (KEEPS) {
            #pragma unroll
            for (int w = 0; w < near.COUNT; w++) {
                const unsigned next = near.at[w];
                if (l == 0) near.at[w] = kept[O][w];
                kept[O][w] = next;
            }
        }
        const bool first_lane = l == (BACK ? WIDTH - 1 : 0) && !(KEEPS && i > 0), last_lane = l == (BACK ? 0 : WIDTH - 1) && !KEEPS;
        const bool full = whole_at(i), lower = !first_lane && (!BACK || whole_at(i + VEC)), upper = !last_lane && (BACK || whole_at(i + VEC));
        if (!inside) return;
        const bool spans = full && lower && over > 0;
        Held<T> made = values;
        if (spans) made = Held<T>(shifted<T, VEC>(memory<T>(near), memory<T>(values), VEC - over));
        if (spans || (full && over == 0)) together(p + begin - over, made);
        if (full && (over == 0 || (lower && upper))) return;
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
        Raw<O, T> held[(AHEAD + 1) * PARTS];

        __device__ Tiles(const Along& walk, const T* base) : p(base + walk.at_row[O]) {
            #pragma unroll
            for (int k = 0; k < AHEAD * PARTS; k++) held[k] = walk.template load<O, T>(p, walk.first + k * PART);
        }
        __device__ Vector<T, EACH> take(const Along& walk) {
            Vector<T, EACH> now;
            #pragma unroll
            for (int v = 0; v < PARTS; v++) {
                const Vector<T, VEC> one = walk.template taken<O>(p, held[v]);
                #pragma unroll
                for (int k = 0; k < VEC; k++) now.at[v * VEC + k] = one.at[k];
            }
            #pragma unroll
            for (int v = 0; v < PARTS; v++) held[AHEAD * PARTS + v] = walk.template load<O, T>(p, walk.first + AHEAD * TILE + v * PART);
            #pragma unroll
            for (int k = 0; k < AHEAD * PARTS; k++) held[k] = held[k + PARTS];
            return now;
        }
    };

    // What stands before each of a thread's elements: before the vector that has it.
    template <typename P> struct Before {
        P of[PARTS];
        __device__ const P& at(int k) const { return of[k / VEC]; }
    };
    template <typename P, typename Join> struct Carried {
        Levels<P> levels;
        const P none;
        Join join;

        __device__ Carried(const P& none, Join join) : none(none), join(join) { levels.begin(none); }
        __device__ void hear(const Along&) {}
        // Makes a thread's elements what each has joined to those before it in its vector, and gives what stands before that.
        __device__ Before<P> prefix(Along& walk, P (&tile)[EACH]) {
            Before<P> found;
            #pragma unroll
            for (int k = 1; k < EACH; k++) {
                if (k % VEC) tile[k] = join(tile[k - 1], tile[k]);
            }
            P total = tile[EACH - 1];
            if constexpr (TEAM > 32) {
                total = warps_before<TEAM / 32, VEC, PARTS>(tile, found.of, walk.turn, none, join);
                walk.turn ^= 1;
            } else {
                static_assert(PARTS == 1);
                found.of[0] = lanes_before<WIDTH>(total, none, join);
                if constexpr (WIDTH > 1) total = lane_of<WIDTH>(total, WIDTH - 1);
            }
            const P start = levels.before(join);
            #pragma unroll
            for (int v = 0; v < PARTS; v++) found.of[v] = join(start, found.of[v]);
            levels.add(total, none, join);
            return found;
        }
    };
    template <typename P, typename Join> __device__ Carried<P, Join> carried(const P& none, Join join) const { return {none, join}; }
    template <typename P> __device__ static void clear(const Layout&) {}
};
