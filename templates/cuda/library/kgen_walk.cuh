// Walks over rows, for kernels that reduce.
#pragma once
#include "kgen_cached.cuh"
#include "kgen_clusters.cuh"
#include "kgen_staged.cuh"
#include "kgen_teams.cuh"

// How the threads of a block walk through rows. Teams of TEAM threads take a row each: neighbours, or ACROSS rows that lie side by side every
// (THREADS / TEAM)-th thread. A thread reads VECTORS vectors of VEC elements at a time. A bit of WIDE, unless it is GIVEN, stands for each operand
// that is read and written in whole vectors, from where operand MAIN is aligned; of rows of several dims one 32 bits further for each whose dims are
// one in memory or that, without vectors, has one element for each; of rows whose columns are added up one 48 bits further for each that lies in
// turns with the next; of staged rows one 32 bits further for each that moves with its block. A row of one segment may stay on the chip between
// readings: KEEP is 1 for registers, 2 for shared memory, 3 where rows follow one another (kgen_rounds.cuh), 4 where these have the readings of rows
// that do not stay, 5 and 6 likewise where threads compute from EVERY vector, 7 for shared memory by way of which a block's rows move as one piece
// (kgen_staged.cuh). A CLUSTER of blocks shares a row, a segment each. Otherwise a team goes through all segments; or, if STEP is 0 or more, one
// launch for the segments of each reading, and one to combine them; or one launch for all readings (kgen_cached.cuh), of which STEP is -1 less twice
// their number, behind one of the STEP after it, which clears its memory. The order in which a row is combined depends on TEAM, VECTORS, VEC and
// `span` alone. Of a row in pieces of PIECE elements (kgen_pieces.cuh), whose last dim has LINE, a thread takes up to four vectors of each piece. Of
// rows that lie side by side it takes ABREAST (0: one, in another order), of which WIDE then tells the operands that have these in a vector
// (kgen_teams.cuh).
template <int THREADS_, int BLOCKS_, int TEAM, bool ACROSS, int VECTORS, int VEC, bool EDGES, u64 WIDE, int MAIN, bool SEGMENTS, int KEEP_,
          bool CLUSTER, int STEP, int RR, int RI, int K, int G, typename Index, int PIECE = 1, int LINE = 0, int ABREAST_ = 0>
struct Walk : Partials {
    static constexpr bool STAGED = KEEP_ == 7;
    static constexpr int THREADS = THREADS_, BLOCKS = BLOCKS_, TEAMS = TEAM == 0 ? 1 : THREADS / TEAM, KEEP = STAGED ? 2 : KEEP_;
    using Layout = Rows<RR, RI, K, G, Index>;
    using Place = Index;  // of an element in a row
    using Spot = ::Spot<Index>;
    using Partials::load;
    static constexpr Place LAST = Place(-1);
    // Whether one launch goes through a row once for each reading, and reads it from memory once.
    static constexpr bool STAYS = ABREAST_ == 0 && STEP == -1 && (KEEP == 2 || KEEP % 2 == 1);
    static constexpr bool CLEARS = STEP < -1 && STEP % 2 == 0, CACHED = STEP < -1 && !CLEARS;
    static constexpr int READINGS = -STEP / 2;  // of a launch for all
    // Whether a thread computes from vectors that are not there too, and leaves what comes of it: where that is not rare, a branch for
    // each costs more.
    static constexpr bool EVERY = KEEP == 2 || KEEP > 4 || (KEEP == 1 && (EDGES || ABREAST_ > 0)) || (KEEP == 0 && !SEGMENTS);
    static constexpr int ABREAST = ABREAST_ > 0 ? ABREAST_ : 1;
    static constexpr bool TOGETHER = ABREAST_ > 0, HOLDS = KEEP == 1, CLUSTERS = CLUSTER, SHARED = STEP == -1 && KEEP == 2 && !STAGED;
    // The vectors that are gone through without a loop: registers need that. A walk that is told how at a call has loops where it can, and
    // one way for full and other rows: a file has many of them, and nvcc takes its time for each.
    static constexpr int IN_ONE = KEEP == 1 || KEEP > 2 || STAGED ? VECTORS : KEEP == 0 || WIDE == GIVEN ? 1 : CLUSTER || VECTORS > 16 ? 2 : VECTORS;
    // The vectors that a reading takes before it uses the first.
    static constexpr int AT_ONCE = KEEP < 2 || STAGED ? VECTORS : CLUSTER || VECTORS < 4 ? 2 : 4;
    // The elements of a vector, and the vectors that a thread takes at a time; whether a row is such vectors, which begin at multiples of four.
    static constexpr int LANES = VEC, TAKEN = VECTORS, DIMS = RR, RANK = RI;
    static constexpr int FEWER = (5 * BLOCKS + 7) / 8;  // blocks where a thread needs more registers than a row takes
    static constexpr bool BY_FOURS = VEC % 4 == 0 && !EDGES;
    // Whether lanes side by side may go through a piece of a row; how many of its vectors each then takes, and how many lanes.
    static constexpr bool PLAIN = !EDGES && !ACROSS && VEC > 1 && WIDE != GIVEN;
    static constexpr int OWN = vectors_of_piece(PLAIN && PIECE % VEC == 0 ? PIECE / VEC : 1, VECTORS, TEAM, CLUSTER || SEGMENTS);
    static constexpr int BESIDE = OWN == 1 ? 1 : PIECE / VEC / OWN;
    // Whether vectors go over the ends of a row's innermost dim: of operands whose dims are one in memory (`even`). Others stand still along it.
    static constexpr bool MARKED = RI > 1 && K < 15 && WIDE != GIVEN, STRADDLES = MARKED && (WIDE >> 47 & 1), RELEASES = MARKED && (WIDE >> 46 & 1);
    // How many of the elements outside of a row's whole vectors a thread takes at most.
    static constexpr int LOOSE = !EDGES ? 0 : TEAM == 0 ? 1 : (2 * VEC - 3 + TEAM) / TEAM;

    const Layout& rows;
    Index row, segment = 0, vectors, head = 0, edges = 0, at_row[K], group, sharing;  // the number of the teams of a block; blocks of a row
    unsigned lane, size, turn = 0, kept = 0, again, round = 0;
    int now = STEP;  // the step at which a block is
    int column = 0;  // of the rows that a thread takes abreast, the one that it is at
    bool inside;

    __device__ explicit Walk(const Layout& rows) : rows(rows), sharing(rows.segments) {
        const unsigned team = TEAM == 0 ? 0 : ACROSS ? threadIdx.x % teams() : own_row();
        lane = TEAM == 0 ? threadIdx.x : ACROSS ? threadIdx.x / teams() : threadIdx.x % TEAM;
        size = TEAM == 0 ? threads() : TEAM;
        Index block = blockIdx.x;
        if constexpr (KEEP == 0 && STEP > 0 && STEP % 2 == 0) block = gridDim.x - 1 - block;  // what was read last is in the L2 cache
        group = block;
        if constexpr (CLEARS) {
            clear<THREADS>(rows.work, Cached<READINGS, Layout>::words(rows)), group = rows.rows;
        } else if constexpr (CACHED) {
            dependency_synchronize(), now = take_turn<READINGS>(*this, segment, group);
        } else if constexpr (CLUSTER || (STEP >= 0 && STEP % 2 == 0)) {
            if (!CLUSTER && KEEP == 0) sharing = gridDim.x / ((rows.rows / ABREAST + teams() - 1) / teams());  // a segment each, or a piece to store
            const Index groups = gridDim.x / sharing;
            const bool beside = !CLUSTER && (ACROSS || rows.share());  // what lies beside one another is read at one time
            segment = beside ? block / groups : block % sharing;
            group = beside ? block % groups : block / sharing;
        }
        go(group * teams() + team);
        asm("mov.u32 %0, %%nctaid.z;" : "=r"(again));
        again *= 0x3210;
        if constexpr (STEP > 0) dependency_synchronize();
    }
    __device__ void go(Index to) {
        row = ABREAST * to;
        inside = row < rows.rows;
        if (!inside) row = rows.rows - ABREAST;  // reads what another team reads, writes nothing
        places_of(rows.row_size, rows.row_stride, row, at_row);
        const Index n = inside || STAGED ? rows.n : 0;
        if constexpr (EDGES) {
            Index start = rows.misaligned;
            #pragma unroll
            for (int k = 0; k < K; k++) start += k == (WIDE == GIVEN ? int(rows.main) : MAIN) ? at_row[k] : 0;
            head = (VEC - start % VEC) % VEC;
            if (head > n) head = n;
        }
        vectors = (n - head) / VEC, edges = n - vectors * VEC;
    }
    // Go on to the k-th of the rows that this thread takes abreast.
    __device__ void abreast(int k) {
        const Index by = Index(k - column);
        row += by;
        #pragma unroll
        for (int o = 0; o < K; o++) at_row[o] += by * rows.row_stride[o][RR - 1];
        column = k;
    }

    // The barriers at which a cluster's blocks exchange their parts, which each must know to be there.
    template <int COUNT> __device__ void start() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if constexpr (CLUSTER && STEP == -1) {
            if (threadIdx.x == 0) {
                for (int k = 0; k < COUNT * (KEEP > 2 ? 2 : 1); k++) {
                    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(barrier(k % COUNT + 8 * (k / COUNT))) : "memory");
                }
                asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            }
            asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        }
#endif
    }
    __device__ static unsigned threads() { return TEAM == 0 || (ACROSS && WIDE == GIVEN) ? blockDim.x : THREADS; }
    // Which of a block's rows a team takes that lies in a warp, or in several of them.
    __device__ static unsigned own_row() {
        if constexpr (STAGED) return staggered<TEAM, THREADS>();
        else return threadIdx.x / (TEAM + !TEAM);
    }
    __device__ static unsigned teams() { return TEAM == 0 ? 1 : threads() / TEAM; }
    __device__ bool wide(int k) const { return (WIDE == GIVEN ? rows.wide : WIDE) >> k & 1; }
    template <int O> __device__ static constexpr bool apart() { return ABREAST > 1 && WIDE != GIVEN && !(WIDE >> O & 1); }
    __device__ static constexpr bool staged(int k) { return STAGED && WIDE >> 32 >> k & 1; }
    __device__ bool stores() const { return !STAGED || inside; }  // else a thread takes a row to no end but that it waits with others
    template <int O> __device__ static constexpr bool lines() { return VEC > 1 && !EDGES && WIDE != GIVEN && (WIDE >> O & 1); }  // an operand's vectors are a row's own
    __device__ static constexpr bool even(int k) { return RI == 1 || (K < 32 && WIDE != GIVEN && (WIDE >> 32 >> k & 1)); }
    // Whether operand k is known to have one element for all of the innermost dim; it is not kept where that is RELEASED.
    __device__ static constexpr bool still(int k) { return RI > 1 && VEC > 1 && WIDE != GIVEN && (STRADDLES ? !even(k) : even(k) && !(WIDE >> k & 1)); }
    // Whether the elements of operand k and those of the next lie in turns: strides are then those of such pairs, of which VEC are moved as
    // one vector.
    __device__ static constexpr bool turns(int k) { return k >= 0 && K <= 16 && WIDE != GIVEN && (WIDE >> 48 >> k & 1); }
    __device__ static constexpr bool ends(int step) { return STEP == step; }  // after which a launch ends
    __device__ constexpr bool stops(int step) const { return CLEARS || (CACHED ? now < 0 || now == step : ends(step)); }
    // One thread for each row.
    __device__ bool leader() const { return inside && lane == 0 && (!CLUSTER || segment == 0) && (CACHED ? now == 2 * READINGS : STEP < 0 || STEP % 2 == 1); }
    template <int O, typename T> __device__ T* at(T* p) const { return p + at_row[O]; }
    template <int O, typename T> __device__ T* start_of(T* p) const { return ACROSS ? settled(p + at_row[O]) : p + at_row[O]; }
    template <int O> __device__ i64 row_index() const { return i64(at_row[O]); }
    // The element of a row at `place` along the dim of gather g; 0 outside, where nothing is read; `within` where it is known to lie inside.
    template <int O, typename T> __device__ T gathered(const T* p, int g, i64 place) const {
        return place >= 0 && place < rows.gather_size[g] ? p[at_row[O] + place * rows.gather_stride[g]] : T();
    }
    template <int O, typename T> __device__ T within(const T* p, int g, i64 place) const { return p[at_row[O] + place * rows.gather_stride[g]]; }
    // VEC neighbours of a row, from the first on: a thread's v-th are every `size`-th, or some of every `size`-th piece.
    struct Chunk { Index first; bool some; };
    __device__ Chunk chunk(Index base, Index end, int v, bool full) const {
        return {(base + vector(lane, v)) * VEC + head, full || (STAGED && v + 1 < VECTORS) || base + vector(lane, v) < end};
    }
    __device__ Index vector(unsigned lane, int v) const { return lane + (lane / BESIDE * (OWN - 1) + v % OWN) * BESIDE + v / OWN * OWN * size; }
    // Whether a thread has all VECTORS vectors from `base` on: then no branch stands between them. All of a warp whose rows are short go one way.
    __device__ bool full(Index base, Index end) const {
        if constexpr (WIDE == GIVEN || STAGED) return false;
        constexpr unsigned LAST = !ACROSS && !SEGMENTS && 0 < TEAM && TEAM <= 32 ? TEAM - 1 : 0;
        return base + vector(lane | LAST, VECTORS - 1) < end;
    }
    // The elements before a row's first whole vector and behind its last: this thread's j-th, and whether it has one.
    __device__ bool has_loose(int j) const { return segment == 0 && lane + j * size < edges; }
    __device__ Index loose(int j) const {
        const Index e = lane + j * size;
        return e < head ? e : e + vectors * VEC;
    }
    // Where element i of a row lies in operand k.
    __device__ Index offset(int k, Index i) const {
        if (LINE > 0 && RI == 2) return i / (LINE + !LINE) * rows.stride[k][0] + i % (LINE + !LINE) * rows.stride[k][RI - 1];
        return !TOGETHER && even(k) && (wide(k) || STRADDLES) ? i : place_of(rows.size, rows.stride[k], i);
    }
    template <int O, typename T> __device__ Vector<T, VEC> load(const T* p, const Chunk& c) const {
        const Index from = offset(O, c.first), step = wide(O) ? 1 : rows.stride[O][RI - 1];
        if (wide(O)) {
            return *reinterpret_cast<const Vector<T, VEC>*>(p + from);
        } else if constexpr (still(O)) {
            return parted<O>(*this, p, c.first).whole();
        } else if constexpr (SHIFTS<T>) {
            return Halves<T, VEC>().load(p, head, rows.n, c.first, from, step).whole();
        } else {
            Vector<T, VEC> v;
            #pragma unroll
            for (int k = 0; k < VEC; k++) v.at[k] = p[Index(from + k * step)];
            return v;
        }
    }

    // Whether vectors of an operand that begin elsewhere than those of MAIN are made of the aligned ones that they lie in.
    template <typename T> static constexpr bool SHIFTS = EDGES && (RI == 1 || STRADDLES) && VEC * sizeof(T) >= 8;

    // What is read of an operand along the row: kept on the chip, or read each time.
    template <int O, typename T, bool KEPT> struct Input {
        static constexpr int HELD = KEPT && !(RELEASES && still(O)) ? KEEP : 0;
        static constexpr bool HALVES = HELD == 0 && SHIFTS<T> && even(O) && WIDE != GIVEN && !(WIDE >> O & 1), PARTS = HELD == 0 && STRADDLES && still(O);
        static constexpr unsigned BYTES = VEC * sizeof(T);
        const T* p;
        unsigned shared = 0, taken = 0;  // by a reading before
        Vector<T, VEC> held[HELD == 1 ? VECTORS : 1], now[VECTORS];
        Halves<T, VEC> halves[HALVES ? VECTORS : 1];
        Parted<T, VEC, Index> parts[PARTS ? VECTORS : 1];
        T loose[LOOSE > 0 ? LOOSE : 1];  // on their way with the rest

        __device__ Input(Walk& walk, const T* start) : p(walk.template start_of<O>(start)) {
            if constexpr (HELD > 0) {
                shared = walk.kept;
                walk.kept += HELD == 2 ? walk.threads() * VECTORS * BYTES : 0;
                const Index base = walk.segment * walk.rows.span, end = walk.end_of(walk.segment);
                if (walk.full(base, end)) hold(walk, base, end, true);
                else hold(walk, base, end, false);
            }
            #pragma unroll
            for (int j = 0; j < LOOSE; j++) {
                if (walk.has_loose(j)) loose[j] = p[walk.offset(O, walk.loose(j))];
            }
        }
        __device__ void hold(const Walk& walk, Index base, Index end, bool full) {
            #pragma unroll (HELD == 2 && WIDE == GIVEN ? 1 : VECTORS > 16 ? 16 : VECTORS)
            for (int v = 0; v < VECTORS; v++) {
                const Chunk c = walk.chunk(base, end, v, full);
                if (!c.some) continue;
                if constexpr (HELD == 1) {
                    held[v] = walk.template load<O>(p, c);
                } else {
                    if (CACHED && BYTES == 16 && walk.wide(O) && walk.now == 2 * READINGS) {
                        copy_once(walk.address(shared, v, BYTES), p + walk.offset(O, c.first));
                    } else if (BYTES == 16 && walk.wide(O)) {
                        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(walk.address(shared, v, BYTES)),
                                     "l"(p + walk.offset(O, c.first)) : "memory");
                    } else {
                        *walk.template place<T>(shared, v) = walk.template load<O>(p, c);
                    }
                }
            }
        }
        // The v-th vector of this thread: fetched from memory some time before it is used, or taken from where it is held.
        __device__ void fetch(const Walk& walk, const Chunk& c, int v) {
            if constexpr (PARTS) parts[v] = parted<O>(walk, p, c.first);
            else if constexpr (HALVES) halves[v].load(p, walk.head, walk.rows.n, c.first, walk.offset(O, c.first), walk.rows.stride[O][RI - 1]);
            else if constexpr (HELD == 0) now[v] = walk.template load<O>(p, c);
        }
        __device__ void take(const Walk& walk, int v, int k) {
            if constexpr (HALVES || PARTS) now[k] = HALVES ? halves[HALVES ? k : 0].whole() : parts[PARTS ? k : 0].whole();
            if constexpr (HELD == 1) {
                if (VECTORS * VEC > 16 && taken > 0) renew(walk, v);
                now[k] = held[v];
            }
            if constexpr (HELD == 2) now[k] = *walk.template place<T>(shared, v);
        }
        __device__ auto one(int v, int k) const { return PARTS ? parts[PARTS ? v : 0].one(k) : element(now[v], k); }
        __device__ const Vector<T, VEC>* vectors() const { return now; }
        __device__ const Vector<T, VEC>& values(int v) const { return now[v]; }
        __device__ T one_loose(const Walk&, int j) const { return loose[j]; }
        __device__ T one_at(const Walk& walk, Index i) const { return p[walk.offset(O, i)]; }
        // The same bits, but the compiler does not know: it computes from them anew, and keeps nothing else from reading to reading.
        __device__ void renew(const Walk& walk, int v) {
            Words<Vector<T, VEC>> words(held[v]);
            #pragma unroll
            for (unsigned& word : words.at) asm volatile("prmt.b32 %0, %0, 0, %1;" : "+r"(word) : "r"(walk.again));
            held[v] = words;
        }
        // Another vector in the place of the v-th, for the readings that follow.
        __device__ void replace(const Walk& walk, int v, int k, const Vector<T, VEC>& by) {
            now[k] = by;
            if constexpr (HELD == 1) held[v] = by;
            if constexpr (HELD == 2) *walk.template place<T>(shared, v) = by;
        }
        // The place of the v-th vector, for N other bytes.
        template <int N> __device__ void lend(const Walk& walk, int v, const unsigned char* from) const { memcpy(walk.template place<T>(shared, v), from, N); }
        template <int N> __device__ void lent(const Walk& walk, int v, unsigned char* to) const { memcpy(to, walk.template place<T>(shared, v), N); }
        __device__ void put(const Walk&, const Chunk&, int) {}
        __device__ void put_loose(const Walk&, int) {}
        __device__ void put_at(const Walk&, Index) {}
    };
    // What is written of an operand along the row.
    template <int O, typename T> struct Output {
        T* p;
        Vector<T, VEC> now[VECTORS];
        T now_loose;

        __device__ void fetch(const Walk&, const Chunk&, int) {}
        __device__ void take(const Walk&, int, int) {}
        __device__ T& one(int v, int k) { return now[v].at[k]; }
        __device__ T& one_loose(const Walk&, int) { return now_loose; }
        __device__ void put(const Walk& walk, const Chunk& c, int v) {
            if constexpr (turns(O) || turns(O - 1)) return;  // both at once
            if (!walk.stores()) return;
            const Index from = walk.offset(O, c.first), step = walk.wide(O) ? 1 : walk.rows.stride[O][RI - 1];
            if (walk.wide(O)) {
                if constexpr (CACHED && VEC * sizeof(T) == 16) write_once(p + from, now[v]);
                else *reinterpret_cast<Vector<T, VEC>*>(p + from) = now[v];
            } else {
                #pragma unroll
                for (int k = 0; k < VEC; k++) p[Index(from + k * step)] = now[v].at[k];
            }
        }
        __device__ void put_loose(const Walk& walk, int j) { put_at(walk, walk.loose(j)); }
        __device__ T& one_at(const Walk&, Index) { return now_loose; }
        __device__ void put_at(const Walk& walk, Index i) { p[walk.offset(O, i)] = now_loose; }
    };
    template <int O, typename T> __device__ auto keep(const T* p) { return walked<O, true>(p); }
    template <int O, typename T> __device__ auto input(const T* p) { return walked<O, false>(p); }
    template <int O, bool KEPT, typename T> __device__ auto walked(const T* p) {
        if constexpr (TOGETHER) return Abreast<Walk, O, T, false>(*this, const_cast<T*>(p));
        else if constexpr (staged(O)) return StagedInput<Walk, O, T>(*this, p);
        else return Input<O, T, KEPT>(*this, p);
    }
    // What all rows share, and the loop over the rows that a team takes: here one (kgen_rounds.cuh has more).
    template <int O, typename T> __device__ auto same(const T* p) { return walked<O, false>(p); }
    template <typename T> struct Ahead { T now; };
    template <int O, typename T> __device__ Ahead<T> ahead(const T* p) const { return {p[at_row[O]]}; }
    template <typename... In> __device__ void begin(In&...) const {}
    template <typename... In> __device__ static constexpr bool further(In&...) { return false; }
    template <int O, typename T> __device__ auto output(T* p) {
        if constexpr (TOGETHER) return Abreast<Walk, O, T, true>(*this, p);
        else if constexpr (staged(O)) return StagedOutput<Walk, O, T>(*this, p);
        else return Output<O, T>{turns(O) || turns(O - 1) ? p + 2 * at_row[O] : start_of<O>(p), {}, {}};
    }
    // Write two outputs that lie in turns, a vector of both; any others are not.
    template <int O, typename T> __device__ void put_both(const Chunk& c, int v, const Output<O, T>& a, const Output<O + 1, T>& b, int) const {
        if constexpr (turns(O)) {
            Vector<T, 2 * VEC> both;
            #pragma unroll
            for (int k = 0; k < VEC; k++) both.at[2 * k] = a.now[v].at[k], both.at[2 * k + 1] = b.now[v].at[k];
            *reinterpret_cast<Vector<T, 2 * VEC>*>(a.p + 2 * offset(O, c.first)) = both;
        }
    }
    template <typename A, typename B> __device__ void put_both(const Chunk&, int, const A&, const B&, long) const {}
    template <typename A, typename... In> __device__ void put_with(const Chunk& c, int v, const A& a, const In&... in) const {
        (put_both(c, v, a, in, 0), ...);
    }
    template <int O> __device__ Position<Walk, O> position() const { return {}; }

    __device__ Index end_of(Index s) const {
        const Index end = (s + 1) * rows.span;
        return (SEGMENTS || CLUSTER) && s + 1 < rows.segments && end < vectors ? end : vectors;
    }
    __device__ static unsigned memory() {
        extern __shared__ __align__(128) unsigned char row_memory[];
        return unsigned(__cvta_generic_to_shared(row_memory));
    }
    __device__ static unsigned address(unsigned shared, int v, unsigned bytes) {
        return memory() + shared + (v * threads() + threadIdx.x) * bytes;
    }
    __device__ static unsigned char* room_at(unsigned shared) {
        extern __shared__ __align__(128) unsigned char row_memory[];
        return row_memory + shared;
    }
    template <typename T> __device__ static Vector<T, VEC>* place(unsigned shared, int v) {
        extern __shared__ __align__(128) unsigned char row_memory[];
        return reinterpret_cast<Vector<T, VEC>*>(row_memory + shared) + v * threads() + threadIdx.x;
    }

    // How many vectors that take two aligned ones are fetched at a time: up to MOST, in half of the registers that a thread has beside a row.
    template <int MOST> __device__ static constexpr int together(int each) {
        const int held = KEEP == 1 ? VECTORS * 4 : 0, room = (65536 / (THREADS * BLOCKS) - held) / 2;
        int group = MOST;
        while (group > 1 && group * each > room) group /= 2;
        return group;
    }
    // VECTORS vectors from `base` on: what `use` makes of each, GROUP of them fetched at a time. Registers need a loop unrolled.
    template <int MOST, typename Use, typename... In> __device__ void read(Index base, Index end, bool full, Use use, In&... in) {
        constexpr int GROUP = together<MOST>((halved<In>(0) + ... + 0));
        #pragma unroll (IN_ONE)
        for (int g = 0; g < VECTORS; g += GROUP) {
            #pragma unroll
            for (int k = 0; k < GROUP; k++) {
                const Chunk c = chunk(base, end, g + k, full);
                if (c.some && g + k < VECTORS) (in.fetch(*this, c, k), ...);
            }
            #pragma unroll
            for (int k = 0; k < GROUP; k++) {
                const Chunk c = chunk(base, end, g + k, full);
                if (!(EVERY || c.some) || g + k >= VECTORS) continue;
                (in.take(*this, g + k, k), ...);
                use(c, k);
                if (c.some) (in.put(*this, c, k), ...);  // what is written
            }
        }
        (mark(in, 0), ...);
    }
    // Reading R of a row: the results of f, combined.
    template <int R, typename Part, typename F, typename... In> __device__ Part reduce(F f, In&... in) {
        return left(combine<R, Part>([&](Part& part, Index base, Index end, bool full) {
            Part few;
            read<AT_ONCE>(base, end, full, [&](const Chunk& c, int v) {
                few.add(some(c, joined<VEC, Part>(v, f, [](Part& a, const Part& b) { follow(a, b, 0); }, in...)));
            }, in...);
            part.add(few);
        }, [&](Part& part, int j) { part.add(f(in.one_loose(*this, j)...)), (in.put_loose(*this, j), ...); }, picked<Part>(*this, f, in...)), in...);
    }
    // The same of sums of products, each rounded with its sum: f adds an element's share to a part, those of four neighbours one by one.
    template <int R, typename Part, typename F, typename... In> __device__ Part products(F f, In&... in) {
        constexpr int EACH = VEC < 4 ? VEC : 4;
        return left(combine<R, Part>([&](Part& part, Index base, Index end, bool full) {
            Part few;
            read<AT_ONCE>(base, end, full, [&](const Chunk& c, int v) {
                Part parts[VEC / EACH];
                #pragma unroll
                for (int k = 0; k < VEC; k++) f(parts[k / EACH], in.one(v, k)...);
                few.add(some(c, tree(parts, [](Part& a, const Part& b) { a.add(b); })));
            }, in...);
            part.add(few);
        }, [&](Part& part, int j) { f(part, in.one_loose(*this, j)...), (in.put_loose(*this, j), ...); }, picked<Part>(*this, f, in...)), in...);
    }
    // The same of a reading whose one result is the greatest magnitude of one operand.
    template <int R, typename Part, typename In> __device__ Part magnitude(In& in) {
        return combine<R, Part>([&](Part& part, Index base, Index end, bool full) {
            read<AT_ONCE>(base, end, full, [&](const Chunk& c, int v) { part.add(some(c, Part{magnitude_of(in.values(v))})); }, in);
        }, [&](Part& part, int j) { part.add(Part{fabs(compute<decltype(in.one_loose(*this, j))>(in.one_loose(*this, j)))}); }, [](Part&) {});
    }
    template <typename Part, typename... In> __device__ const Part& left(const Part& part, const In&... in) const { return all_leave(*this, in...), part; }
    // Whether a peak is the greatest of what lies in memory, and not of few elements that stay taken apart; that of a vector.
    template <typename Part> __device__ static constexpr auto lies(int) -> decltype(Part::PEAK, true) { return !TOGETHER && (KEEP != 1 || VECTORS * VEC > 16); }
    template <typename Part> __device__ static constexpr bool lies(long) { return false; }
    template <typename Part, typename F, typename... In> __device__ static Part peak(int k, F f, In&... in) {
        if constexpr (lies<Part>(0)) return Part{greatest_of<1>(picked<Part::PEAK>(in...).vectors() + k)};
        else return joined<VEC, Part>(k, f, [](Part& a, const Part& b) { a.merge_peaks(b); }, in...);
    }
    // The sums of GROUP vectors from the g-th on about a peak.
    template <int GROUP, typename Part, typename About, typename... In>
    __device__ void sums(Part& few, const Part& top, const About& about, Index base, Index end, int g, bool full, In&... in) {
        #pragma unroll
        for (int k = 0; k < GROUP; k++) {
            const Chunk c = chunk(base, end, g + k, full);
            if (!(EVERY || c.some) || g + k >= VECTORS) continue;
            (retake(*this, in, g + k, k, 0), ...);
            if constexpr (TOGETHER) {
                Part more = few;
                share_onto(more, top, about, in.one(k, 0)...);
                if (c.some) few = more;
            } else {
                few.merge_sums(some(c, this->template summed<VEC>(k, top, about, in...)));
            }
        }
    }
    template <int GROUP, typename Part, typename A, typename B, typename... In>
    __device__ void sums(Part& few, const Part& top, const Either<A, B>& about, Index base, Index end, int g, bool full, In&... in) {
        if (about.first) sums<GROUP>(few, top, about.a, base, end, g, full, in...);
        else sums<GROUP>(few, top, about.b, base, end, g, full, in...);
    }
    // An online reading, whose sums are about a maximum that is found with them: f gives an element's part without these sums, `about` the sums alone, about the maximum
    // of what this thread has seen.
    template <int R, typename Part, typename F, typename About, typename... In> __device__ Part online(F f, About about, In&... in) {
        constexpr int GROUP = AT_ONCE;
        (mark(in, 0), ...);  // it takes a vector twice
        return left(combine<R, Part>([&](Part& part, Index base, Index end, bool full) {
            #pragma unroll (IN_ONE)
            for (int g = 0; g < VECTORS; g += GROUP) {
                #pragma unroll
                for (int k = 0; k < GROUP; k++) {
                    const Chunk c = chunk(base, end, g + k, full);
                    if (c.some && g + k < VECTORS) (in.fetch(*this, c, k), ...);
                }
                Part top = part, few, seen;
                auto& peaks = TOGETHER ? seen : top;  // how many elements of a vector there are is then known, where all are
                if constexpr (lies<Part>(0)) if (full && g + GROUP <= VECTORS) {
                    #pragma unroll
                    for (int k = 0; k < GROUP; k++) (in.take(*this, g + k, k), ...);
                    top.merge_peaks(Part{greatest_of<GROUP>(picked<Part::PEAK>(in...).vectors())});
                }
                #pragma unroll
                for (int k = 0; k < GROUP; k++) {
                    const Chunk c = chunk(base, end, g + k, full);
                    if (!(EVERY || c.some) || g + k >= VECTORS || (lies<Part>(0) && full && g + GROUP <= VECTORS)) continue;
                    (in.take(*this, g + k, k), ...);
                    peaks.merge_peaks(some(c, peak<Part>(k, f, in...)));
                }
                if constexpr (TOGETHER) top.merge_peaks(seen);
                part.rescale(top);
                sums<GROUP>(few, top, about, base, end, g, full, in...);
                part.merge_sums(few);
            }
        }, [&](Part& part, int j) {
            Part top = part;
            top.merge_peaks(f(in.one_loose(*this, j)...));
            part.rescale(top);
            part.merge_sums(share(top, about, in.one_loose(*this, j)...));
        }, picked<Part>(*this, f, in...)), in...);
    }
    // What `add` makes of VECTORS vectors a thread, from a first one up to an end, `add_loose` of single elements and `pick` of one, for the whole row.
    template <int R, typename Part, typename Add, typename AddLoose, typename Pick> __device__ Part combine(Add add, AddLoose add_loose, Pick pick) {
        if constexpr (KEEP == 2) asm volatile("cp.async.wait_all;" ::: "memory");
        if constexpr (STAGED) __syncthreads();
        const auto segment_part = [&](Index s) {
            Part part;
            const Index end = end_of(s);
            Index base = s * rows.span;
            do {
                if (full(base, end)) add(part, base, end, true);
                else add(part, base, end, false);
                base += size * VECTORS;
            } while (SEGMENTS && base < end);
            if (s == 0) {
                pick(part);
                #pragma unroll
                for (int j = 0; j < LOOSE; j++) if (has_loose(j)) add_loose(part, j);
            }
            return CLUSTER ? part : team(part);
        };
        if constexpr (CLEARS) {
            return Part();
        } else if constexpr (CACHED) {
            return part_of_row<R, READINGS, Part>(*this, [&] { return segment_part(segment); });
        } else if constexpr (STEP > 2 * R + 1) {
            return load(done(R) + u64(row) * Words<Part>::COUNT, Part());
        } else if constexpr (TOGETHER && STEP == 2 * R) {
            return parts_abreast<TEAM, Part>(*this, add);
        } else if constexpr (TOGETHER && STEP == -1) {
            return part_abreast<TEAM, Part>(*this, add);
        } else if constexpr (STEP == 2 * R) {
            const Part part = segment_part(segment);
            if (inside && lane == 0) save(rows.work + (u64(row) * rows.segments + segment) * Words<Part>::COUNT, part);
            return part;
        } else if constexpr (STEP == 2 * R + 1) {
            const unsigned* parts = rows.work + u64(row) * rows.segments * Words<Part>::COUNT;
            const Part part = all([&](Index s) { return load(parts + s * Words<Part>::COUNT, Part()); }, false);
            if (leader()) save(done(R) + u64(row) * Words<Part>::COUNT, part);
            return part;
        } else if constexpr (SEGMENTS) {
            return all(segment_part, true);
        } else if constexpr (CLUSTER) {
            // Parts that are dear to add go through their block first, and those of many warps that each have few elements of 16 bits.
            constexpr bool FEW = KEEP > 2 && THREADS >= 512 && VEC > 4 && VECTORS <= 2 * Words<Part>::COUNT;
            return part_of_cluster<R, (KEEP > 2), ACROSS || rescales<Part>(0) || FEW, ACROSS>(*this, segment_part(segment));
        } else {
            return segment_part(0);
        }
    }
    // The last reading: f, which stores. Where blocks share a row they go through it side by side, not each through a segment: who
    // stores an element does not change it, and what is moved at one time lies together.
    template <typename F, typename... In> __device__ void each(F f, In&... in) {
        if constexpr (STAGED) all_arrived();
        if constexpr (KEEP == 0 && SEGMENTS && STEP >= 0 && !(adds<In>(0) || ...)) {
            const Index piece = size * VECTORS, pieces = vectors / piece + (vectors % piece != 0);
            const auto stored = [&](Index s) {
                if (full(s * piece, vectors)) store(s * piece, vectors, true, f, in...);
                else store(s * piece, vectors, false, f, in...);
            };
            if constexpr (TOGETHER) {  // a piece for each block: what is read stays in registers from row to row
                if (segment < pieces) stored(segment);
            } else {
                for (Index s = segment; s < pieces; s += sharing) stored(s);
            }
        } else {
            const Index last = SEGMENTS && STEP < 0 ? rows.segments : segment + 1;
            for (Index s = segment; s < last; s++) {
                const Index end = end_of(s);
                Index base = s * rows.span;
                do {
                    if (full(base, end)) store(base, end, true, f, in...);
                    else store(base, end, false, f, in...);
                    base += size * VECTORS;
                } while (SEGMENTS && base < end);
            }
        }
        #pragma unroll
        for (int j = 0; j < LOOSE; j++) {
            if (!has_loose(j)) continue;
            f(in.one_loose(*this, j)...);
            (in.put_loose(*this, j), ...);
        }
        all_leave(*this, in...);
    }
    template <typename F, typename... In> __device__ void store(Index base, Index end, bool full, F f, In&... in) {
        constexpr int GROUP = VECTORS < 2 || (VEC == 1 && KEEP == 0) || TOGETHER ? VECTORS : KEEP < 2 || VECTORS < 4 || (CLUSTER && (KEEP > 2 || VECTORS > 8 || (fetched<In>(0) || ...))) ? 2 : 4;
        read<GROUP>(base, end, full, [&](const Chunk& c, int v) {
            if ((adds<In>(0) || ...) && !(c.some && stores())) return;
            #pragma unroll
            for (int k = 0; k < VEC; k++) f(in.one(v, k)...);
            if constexpr (K <= 16 && WIDE != GIVEN && WIDE >> 48) if (c.some) (put_with(c, v, in, in...), ...);
        }, in...);
    }

    // All segments of a row in a fixed order: a thread adds up some of them, then the team its threads, which make each `together` or have it.
    template <typename Get> __device__ auto all(Get get, bool together) {
        using Part = decltype(get(Index()));
        if (together && rows.segments == 1) return get(0);
        Sixteens<Part> sums;
        if (together) {
            for (Index s = 0; s < rows.segments; s++) {
                const Part part = get(s);
                if (s % size == lane) sums.add(part);
            }
        } else {
            add_ahead(*this, sums, get);
        }
        return team(sums.whole());
    }
    // Where the rows' results of reading R are kept, behind those of the segments.
    __device__ unsigned* done(int r) const { return rows.work + u64(rows.rows) * (rows.segments + r) * rows.slot; }
    // The parts of a team's threads as one, in each of them.
    template <typename Part> __device__ Part team(Part part) { return part_of_team<TEAM, ACROSS>(*this, part); }
};
