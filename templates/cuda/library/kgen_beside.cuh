// Walks along rows that lie side by side, for kernels that scan.
#pragma once
#include "kgen_scans.cuh"
#include "kgen_told.cuh"

// As `Along`, where a thread takes VEC elements of each of PARTS neighbouring rows, and TEAM threads share these rows. EVEN has a bit for each
// operand in which the PARTS elements beside one another are an aligned vector. A block takes all tiles of its rows; or, if STEP is not -1,
// one tile: a ticket says which, the first tiles of all rows before the second ones; it hears what stands before that of blocks whose tickets
// are older. STEP 0: a launch that clears what they are told in.
template <int THREADS_, int BLOCKS_, int TEAM, int VEC_, int PARTS, bool BACK, u64 EVEN, int STEP, int RR, int K, typename Index> struct Beside {
    static constexpr int THREADS = THREADS_, BLOCKS = BLOCKS_, VEC = VEC_, EACH = VEC * PARTS, TEAMS = THREADS / TEAM, SIDE = TEAMS * PARTS;
    static constexpr int GROUP = 16, AT_ONCE = 8;
    static constexpr bool CLEARS = STEP == 0, CHAINED = STEP == 1;
    static constexpr Index TILE = Index(TEAM) * VEC;
    using Layout = Lines<RR, K, Index>;

    const Layout& rows;
    Index begin, row, segment = 0, first, last, at_row[K];
    unsigned lane, side;
    bool inside;

    __device__ explicit Beside(const Layout& rows) : rows(rows), lane(threadIdx.x / TEAMS), side(threadIdx.x % TEAMS * PARTS) {
        Index block = blockIdx.x;
        if constexpr (CHAINED) {
            dependency_synchronize();
            const Index blocks = (rows.rows + SIDE - 1) / SIDE, taken = ticket(rows.work);
            segment = taken / blocks;
            block = taken % blocks;
        }
        begin = block * SIDE;
        inside = begin + side < rows.rows;
        row = inside ? begin + side : rows.rows - PARTS;  // reads what another thread reads, writes nothing
        places_of(rows.row_size, rows.row_stride, row, at_row);
        first = segment * TILE;
        last = !CHAINED || rows.n - first < TILE ? rows.n : first + TILE;
    }
    __device__ bool more() const { return first < last; }
    __device__ void next() { first += TILE; }
    __device__ static constexpr bool tells() { return false; }

    // Where the thread's k-th element of a tile stands among those it has, and its place.
    __device__ static constexpr int at(int k) { return k; }
    __device__ Index place(Index i) const { return BACK ? rows.n - 1 - i : i; }
    template <int O> __device__ i64 position(int k) const {
        return i64(at_row[O] + k / VEC * rows.row_stride[O][RR - 1] + place(first + lane * VEC + k % VEC) * rows.step[O]);
    }

    template <typename T> using Held = Words<Vector<T, PARTS>>;
    template <typename T> using Memory = Vector<unsigned, Held<T>::COUNT>;
    template <int O, typename T> static constexpr bool WHOLE = (EVEN >> O & 1) && sizeof(Vector<T, PARTS>) % 4 == 0;
    // The elements at place `i` of the thread's rows.
    template <int O, typename T> __device__ Held<T> load(const T* p, Index i) const {
        p += place(i) * rows.step[O];
        if constexpr (WHOLE<O, T>) {
            Held<T> found;
            #pragma unroll
            for (int w = 0; w < found.COUNT; w++) found.at[w] = 0;
            if (i < last) {
                const Memory<T> all = *reinterpret_cast<const Memory<T>*>(p);
                #pragma unroll
                for (int w = 0; w < found.COUNT; w++) found.at[w] = all.at[w];
            }
            return found;
        } else {
            Vector<T, PARTS> found = {};
            if (i < last) {
                #pragma unroll
                for (int c = 0; c < PARTS; c++) found.at[c] = p[c * rows.row_stride[O][RR - 1]];
            }
            return Held<T>(found);
        }
    }
    template <int O, typename T> __device__ void store(T* p, const Vector<T, EACH>& values) const {
        #pragma unroll
        for (int k = 0; k < VEC; k++) {
            const Index i = first + lane * VEC + k;
            if (!inside || i >= last) return;
            Vector<T, PARTS> one;
            #pragma unroll
            for (int c = 0; c < PARTS; c++) one.at[c] = values.at[c * VEC + k];
            T* to = p + at_row[O] + place(i) * rows.step[O];
            if constexpr (WHOLE<O, T>) {
                const Held<T> words(one);
                Memory<T> made;
                memcpy(&made, &words, sizeof(made));
                *reinterpret_cast<Memory<T>*>(to) = made;
            } else {
                #pragma unroll
                for (int c = 0; c < PARTS; c++) to[c * rows.row_stride[O][RR - 1]] = one.at[c];
            }
        }
    }

    // Operand O of the thread's rows, a tile of it on its way.
    template <int O, typename T> struct Tiles {
        const T* p;
        Held<T> held[VEC];

        __device__ Tiles(const Beside& walk, const T* base) : p(base + walk.at_row[O]) { ask(walk, walk.first); }
        __device__ void ask(const Beside& walk, Index from) {
            #pragma unroll
            for (int k = 0; k < VEC; k++) held[k] = walk.template load<O>(p, from + walk.lane * VEC + k);
        }
        __device__ Vector<T, EACH> take(const Beside& walk) {
            Vector<T, EACH> now;
            #pragma unroll
            for (int k = 0; k < VEC; k++) {
                const Vector<T, PARTS> one = held[k];
                #pragma unroll
                for (int c = 0; c < PARTS; c++) now.at[c * VEC + k] = one.at[c];
            }
            if constexpr (!CHAINED) ask(walk, walk.first + TILE);
            return now;
        }
    };

    template <typename P> struct Before {
        P of[PARTS];
        __device__ const P& at(int k) const { return of[k / VEC]; }
    };
    // What stands before a tile: of the tiles before it the whole groups of GROUP, and the last ones, each of these joined one by one, by the
    // thread that has the number of the row in the block; of a thread that takes all of its rows by `Levels`.
    template <typename P, typename Join> struct Carried {
        P groups, few;
        Levels<P> levels[TEAM == 1 ? PARTS : 1];
        const P none;
        Join join;
        unsigned tiles = 0;

        __device__ Carried(const P& none, Join join) : groups(none), few(none), none(none), join(join) {
            for (auto& each : levels) each.begin(none);
        }
        __device__ void hear(const Beside&) {}
        // Makes a thread's elements what each has joined to those before it that the thread has of its row, and gives what stands before these.
        __device__ Before<P> prefix(Beside& walk, P (&tile)[EACH]) {
            Before<P> found;
            join_own(tile, join);
            if constexpr (TEAM == 1) {
                #pragma unroll
                for (int c = 0; c < PARTS; c++) {
                    found.of[c] = levels[c].before(join);
                    levels[c].add(tile[c * VEC + VEC - 1], none, join);
                }
            } else {
                __shared__ Words<P> totals[2][TEAM][SIDE], starts[2][SIDE];  // two, so that nobody waits for what is read last
                const unsigned turn = tiles++ % 2;
                put(walk, tile, totals[turn]);
                __syncthreads();
                if (threadIdx.x < SIDE) {
                    const P all = share_out(totals[turn], none, join);
                    if constexpr (CHAINED) heard(walk, all);
                    starts[turn][threadIdx.x] = Words<P>(join(groups, few));
                    few = join(few, all);
                    if (tiles % GROUP == 0) groups = join(groups, few), few = none;
                }
                __syncthreads();
                #pragma unroll
                for (int c = 0; c < PARTS; c++) found.of[c] = join(P(starts[turn][walk.side + c]), P(totals[turn][walk.lane][walk.side + c]));
            }
            return found;
        }
        // A thread tells the total of its tile of the block's row number threadIdx.x, and hears what stands before that.
        __device__ void heard(const Beside& walk, const P& total) {
            const i64 rows = walk.rows.rows, own = i64(walk.begin) + threadIdx.x, number = walk.segment / GROUP, first = number * GROUP;
            if (own >= rows) return;
            const i64 start = (walk.rows.segments + number) * rows + own;
            const bool goes_on = walk.segment + 1 < walk.rows.segments;
            unsigned* work = walk.rows.work;
            if (goes_on) tell(work, walk.segment * rows + own, total);
            for (i64 from = first; from < walk.segment; from += AT_ONCE) {
                Told<P> some[AT_ONCE];
                #pragma unroll
                for (int s = 0; s < AT_ONCE; s++) some[s] = Told<P>(work, (from + s < walk.segment ? from + s : from) * rows + own);
                #pragma unroll
                for (int s = 0; s < AT_ONCE; s++) {
                    if (from + s < walk.segment) few = join(few, some[s].heard());
                }
            }
            if (number > 0) groups = Told<P>(work, start).heard();
            if (goes_on && walk.segment - first == GROUP - 1) tell(work, start + rows, join(groups, join(few, total)));
        }
    };
    // Joins a thread's elements to those before them that it has of their row.
    template <typename P, typename Join> __device__ static void join_own(P (&tile)[EACH], Join join) {
        #pragma unroll
        for (int k = 1; k < EACH; k++) {
            if (k % VEC) tile[k] = join(tile[k - 1], tile[k]);
        }
    }
    template <typename P> __device__ static void put(const Beside& walk, const P (&tile)[EACH], Words<P> (&totals)[TEAM][SIDE]) {
        #pragma unroll
        for (int c = 0; c < PARTS; c++) totals[walk.lane][walk.side + c] = Words<P>(tile[c * VEC + VEC - 1]);
    }
    // Makes of the totals of each thread's elements of the block's row number threadIdx.x what stands before these; gives the tile's total.
    template <typename P, typename Join> __device__ static P share_out(Words<P> (&totals)[TEAM][SIDE], const P& none, Join join) {
        P all = none;
        #pragma unroll 4
        for (int l = 0; l < TEAM; l++) {
            const P one = totals[l][threadIdx.x];
            totals[l][threadIdx.x] = Words<P>(all);
            all = join(all, one);
        }
        return all;
    }
    template <typename P, typename Join> __device__ Carried<P, Join> carried(const P& none, Join join) const { return {none, join}; }
    template <typename P> __device__ static void clear(const Layout& rows) {
        ::clear<THREADS>(rows.work, i64(rows.rows) * (rows.segments + (rows.segments + GROUP - 1) / GROUP) * Words<P>::COUNT);
    }
};
