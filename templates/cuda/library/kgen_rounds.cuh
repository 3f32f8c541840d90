// Walks whose teams take rows one after the other, and what they add up over all rows.
#pragma once
#include "kgen_walk.cuh"

// A type without its reference.
template <typename T> struct Plain { using Type = T; };
template <typename T> struct Plain<const T&> { using Type = T; };
template <typename T> struct Plain<T&> { using Type = T; };

// A value in shared memory, by its address there.
template <typename V> __device__ inline V read_shared(unsigned at) {
    Words<V> words;
    if constexpr (sizeof(V) == 16) {
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words.at[0]), "=r"(words.at[1]), "=r"(words.at[2]), "=r"(words.at[3]) : "r"(at) : "memory");
    } else if constexpr (sizeof(V) == 8) {
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words.at[0]), "=r"(words.at[1]) : "r"(at) : "memory");
    } else {
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words.at[0]) : "r"(at) : "memory");
    }
    return words;
}

// A walk in rounds: team t of all takes rows t, t + every, and so on, STAGES of which are on their way to shared memory or there; of one
// stage, which has room for two rows of operand MAIN, the last reading of a row sends for the next one's vectors as it leaves the others'.
// With STAGES 0 it takes one row, as the walk beneath does; -1 stands for the launch that adds up what `groups` blocks (or clusters) left,
// for each element of a row, from the word `columns` of `work` on.
template <typename W, int STAGES> struct Rounds;
template <typename Rows> struct RoundsLayout { Rows rows; u64 columns, every, groups, few, room; };

template <int THREADS, int BLOCKS, int TEAM, bool ACROSS, int VECTORS, int VEC, bool EDGES, u64 WIDE, int MAIN, bool SEGMENTS, int KEEP,
          bool CLUSTER, int STEP, int RR, int RI, int K, int G, typename Index, int STAGES>
struct Rounds<Walk<THREADS, BLOCKS, TEAM, ACROSS, VECTORS, VEC, EDGES, WIDE, MAIN, SEGMENTS, KEEP, CLUSTER, STEP, RR, RI, K, G, Index>, STAGES>
    : Walk<THREADS, BLOCKS, TEAM, ACROSS, VECTORS, VEC, EDGES, WIDE, MAIN, SEGMENTS, KEEP, CLUSTER, STEP, RR, RI, K, G, Index> {
    using Under = Walk<THREADS, BLOCKS, TEAM, ACROSS, VECTORS, VEC, EDGES, WIDE, MAIN, SEGMENTS, KEEP, CLUSTER, STEP, RR, RI, K, G, Index>;
    using Chunk = typename Under::Chunk;
    using Layout = RoundsLayout<typename Under::Layout>;
    static constexpr bool MOVES = STAGES > 0, FINISHES = STAGES < 0;
    static constexpr int AHEAD = STAGES == 1 ? 2 : STAGES;  // rows of MAIN on their way or there
    static_assert(!(STAGES == 1 && EDGES), "what a row's edges need is sent for with whole rows");

    const Layout& all_rows;
    Index to = 0, first = 0;  // the row of this round, also beyond the last; that of a block's first team
    Index whole;              // the vectors of a row: all rows of a team begin alike
    unsigned now = 0, stage = 0, bytes = 0;  // of the rows in shared memory the one of this round, where it lies; the bytes of each
    bool leaves = false;                     // whether this reading of a row is the last

    __device__ explicit Rounds(const Layout& layout) : Under(layout.rows), all_rows(layout) {
        first = this->group * Under::teams();
        to = first + (TEAM == 0 ? 0 : ACROSS ? threadIdx.x % Under::teams() : threadIdx.x / TEAM);
        whole = EDGES ? this->vectors : this->rows.n / VEC;
        if constexpr (FINISHES) dependency_synchronize();
    }

    // ---- rounds: all threads of a block go through as many
    template <typename... In> __device__ void begin(In&... in) {
        (in.open(*this), ...);
        if constexpr (MOVES) {
            if constexpr (STAGES > 1) bytes = this->kept;
            #pragma unroll
            for (int s = 0; s < AHEAD - 1; s++) send(to + s * Index(all_rows.every), s, in...);
            arrive(in...);
        }
    }
    __device__ bool more() const { return MOVES ? first < this->rows.rows : this->round == 0; }
    template <typename... In> __device__ void next(In&... in) {
        this->round++;
        if constexpr (MOVES) {
            first += Index(all_rows.every);
            to += Index(all_rows.every);
            this->go(to);
            now = now == AHEAD - 1 ? 0 : now + 1;
            stage = now * bytes;
            if constexpr (STAGES == 1) asm volatile("cp.async.commit_group;" ::: "memory");  // what the last reading sent for
            arrive(in...);
        }
    }
    template <typename... In> __device__ bool further(In&... in) {
        next(in...);
        return more();
    }
    template <typename... In> __device__ void send(Index row, unsigned which, In&... in) {
        const bool there = row < this->rows.rows;
        (in.send(*this, row, there, which), ...);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    template <typename... In> __device__ void arrive(In&... in) {
        send(to + (AHEAD - 1) * Index(all_rows.every), now == 0 ? AHEAD - 1 : now - 1, in...);
        asm volatile("cp.async.wait_group %0;" :: "n"(AHEAD > 0 ? AHEAD - 1 : 0) : "memory");
        (in.arrive(*this), ...);
    }

    // Where a row begins in operand k.
    __device__ Index origin(int k, Index row) const { return place_of(this->rows.row_size, this->rows.row_stride[k], row); }
    // This thread's vectors of any row: from `base` on, up to `end`.
    __device__ Index base() const { return this->segment * this->rows.span; }
    __device__ Index end() const {
        const Index end = (this->segment + 1) * this->rows.span;
        return (SEGMENTS || CLUSTER) && end < whole ? end : whole;
    }

    // How many vectors of a row this thread takes.
    __device__ unsigned mine() const {
        unsigned count = 0;
        #pragma unroll
        for (int v = 0; v < VECTORS; v++) count += this->chunk(base(), end(), v, false).some;
        return count;
    }
    // A reading of the row: `f` adds an element's share to a partial.
    template <int R, typename Part, typename F, typename... In> __device__ Part accumulate(F f, In&... in) {
        return this->template combine<R, Part>([&](Part& part, Index base, Index end, bool full) {
            Part few;
            this->template read<VECTORS < 2 ? 1 : 2>(base, end, full, [&](const Chunk& c, int v) {
                if (!c.some) return;
                #pragma unroll
                for (int k = 0; k < VEC; k++) f(few, in.one(v, k)...);
            }, in...);
            part.add(few);
        }, [](Part&, int) {}, [](Part&) {});
    }

    // The last reading: `f`, which stores.
    template <typename F, typename... In> __device__ void each(F f, In&... in) {
        leaves = true;
        Under::each(f, in...);
        leaves = false;
    }

    // The threads of a block that shared memory is laid out for.
    __device__ static unsigned slots() { return WIDE == GIVEN ? Under::threads() : THREADS; }

    // What is read of an operand along each row: sent for some rounds before. Each thread reads what it has sent for itself.
    template <int O, typename T> struct Moving {
        // The first of two operands that lie in turns sends for what both have there, and each takes its own from where that is.
        static constexpr bool SECOND = Under::turns(O - 1);
        static constexpr int TWO = MOVES && (SECOND || Under::turns(O)) ? 2 : 1;
        static constexpr unsigned BYTES = TWO * VEC * sizeof(T);
        // Whether vectors go to shared memory by themselves, and whether a row is one run of them, and rows lie equally far apart.
        static constexpr bool SENT = WIDE != GIVEN && (WIDE >> O & 1) && (BYTES == 16 || BYTES == 8 || BYTES == 4), FLAT = SENT && RR == 1 && RI == 1;
        static constexpr bool ALONE = STAGES == 1 && O != MAIN;  // whether the next row's vectors take the places of this one's
        static_assert(STAGES != 1 || TWO == 1, "what lies in turns is sent for with whole rows");
        const T* p;
        const T* from;  // this thread's first vector of the row to send for
        i64 step;       // from there to the next such row's
        unsigned own, mine;
        Index places[SENT && !FLAT ? VECTORS : 1];  // of its vectors, in each row
        Vector<T, TWO * VEC> now[VECTORS];
        int taken_from[ALONE ? VECTORS : 1];
        unsigned edge = 0;  // where a thread has the vector in which its element outside of whole ones lies: of a row that begins anywhere

        __device__ void open(Rounds& walk) {
            if constexpr (SECOND) walk.kept -= slots() * VECTORS * BYTES;
            own = walk.kept + threadIdx.x * BYTES + (SENT ? walk.memory() : 0);
            walk.kept += slots() * VECTORS * BYTES;
            if constexpr (STAGES == 1 && O == MAIN) {
                walk.bytes = slots() * VECTORS * BYTES;
                walk.kept += walk.bytes;
            }
            if constexpr (SENT && !FLAT && MOVES) {
                #pragma unroll
                for (int v = 0; v < VECTORS; v++) {
                    const Chunk c = walk.chunk(walk.base(), walk.end(), v, false);
                    places[v] = c.some ? walk.offset(O, c.first) : 0;
                }
                mine = walk.mine();
            }
            if constexpr (FLAT && MOVES) {
                from = p + TWO * (walk.origin(O, walk.to) + walk.head + (walk.base() + walk.lane) * VEC);
                step = TWO * i64(walk.all_rows.every) * walk.rows.row_stride[O][0];
                mine = walk.mine();
                if constexpr (EDGES) {
                    edge = walk.kept + threadIdx.x * BYTES + walk.memory();
                    walk.kept += 2 * VEC * BYTES;
                }
            }
            if constexpr (ALONE) send_all(walk, walk.to, walk.to < walk.rows.rows, 0);
        }
        // Where within its aligned vector an element lies, in bytes.
        __device__ static unsigned within(const T* at) { return unsigned(reinterpret_cast<u64>(at)) % BYTES; }
        __device__ const T* loose(const Under& walk, Index origin) const { return p + origin + walk.loose(0); }
        // Send for the v-th vector of a row that begins at `begin`.
        __device__ void send_one(const Rounds& walk, const T* begin, int v, unsigned to) {
            if constexpr (SENT) {
                const T* source = FLAT ? from + TWO * v * walk.size * VEC : begin + TWO * places[FLAT ? 0 : v];
                if (unsigned(v) >= mine) return;
                if constexpr (BYTES == 16) {
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(source) : "memory");
                } else {
                    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(to), "l"(source), "n"(BYTES) : "memory");
                }
            } else {
                const Chunk c = walk.chunk(walk.base(), walk.end(), v, false);
                if (c.some) *slot(to) = walk.template load<O>(begin, c);
            }
        }
        __device__ const T* start(const Rounds& walk, Index row) const { return FLAT ? nullptr : p + TWO * walk.origin(O, row); }
        // Send for a row, if it is there, into one of the stages; the rows are those of this team, one after the other.
        __device__ void send(const Rounds& walk, Index row, bool there, unsigned which) {
            if constexpr (ALONE || SECOND) return;
            send_all(walk, row, there, which * walk.bytes);
            if constexpr (FLAT) from += step;
        }
        __device__ void send_all(const Rounds& walk, Index row, bool there, unsigned stage) {
            if (!there) return;
            const T* begin = start(walk, row);
            #pragma unroll
            for (int v = 0; v < VECTORS; v++) send_one(walk, begin, v, own + stage + v * slots() * BYTES);
            if constexpr (EDGES && FLAT) {
                if (walk.has_loose(0)) {  // with what stands before it in the vector, and nothing behind
                    const T* source = loose(walk, walk.origin(O, row));
                    const unsigned before = within(source);
                    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                                 :: "r"(edge + stage), "l"(source - before / sizeof(T)), "n"(BYTES), "r"(before + unsigned(sizeof(T))) : "memory");
                }
            }
        }
        __device__ static Vector<T, VEC>* slot(unsigned at) {
            extern __shared__ __align__(128) unsigned char row_memory[];
            return reinterpret_cast<Vector<T, VEC>*>(row_memory + at);
        }
        __device__ void arrive(const Rounds& walk) {
            if constexpr (ALONE && FLAT) from += step;
        }
        __device__ void fetch(const Under& walk, const Chunk& c, int v) {
            if constexpr (!MOVES) now[v] = walk.template load<O>(p + walk.at_row[O], c);
        }
        __device__ void pass(int v, int k) {  // what is taken of the v-th vector is elsewhere
            if constexpr (ALONE) taken_from[k] = v;
        }
        __device__ void take(const Under& walk, int v, int k) {
            pass(v, k);
            if constexpr (MOVES) {
                const unsigned at = own + (ALONE ? 0 : static_cast<const Rounds&>(walk).stage) + v * slots() * BYTES;
                if constexpr (SENT) now[k] = read_shared<Vector<T, TWO * VEC>>(at);
                else now[k] = *slot(at);
            }
        }
        __device__ auto one(int v, int k) const { return element(now[v], TWO * k + SECOND); }
        __device__ const Vector<T, VEC>* vectors() const { return now; }
        __device__ Vector<T, VEC> values(int v) const {
            Vector<T, VEC> own;
            #pragma unroll
            for (int k = 0; k < VEC; k++) own.at[k] = now[v].at[TWO * k + SECOND];
            return own;
        }
        __device__ T one_loose(const Under& walk, int j) const {
            if constexpr (MOVES && EDGES && FLAT) {
                const unsigned at = edge + static_cast<const Rounds&>(walk).stage + within(loose(walk, walk.at_row[O]));
                if constexpr (sizeof(T) >= 4) return read_shared<T>(at);
                Words<T> words;
                words.at[0] = read_shared<unsigned>(at / 4 * 4) >> 8 * (at % 4);
                return words;
            } else {
                return p[walk.at_row[O] + walk.offset(O, walk.loose(j))];
            }
        }
        __device__ void put(const Under& under, const Chunk&, int k) {
            if constexpr (ALONE) {
                const Rounds& walk = static_cast<const Rounds&>(under);
                const Index next = walk.to + Index(walk.all_rows.every);
                if (walk.leaves && next < walk.rows.rows) send_one(walk, start(walk, next), taken_from[k], own + taken_from[k] * slots() * BYTES);
            }
        }
        __device__ void put_loose(const Under&, int) {}
    };
    // What is read of an operand that is the same for all rows: as it is computed with, where a thread has 80 registers.
    template <int O, typename T> struct Same {
        using Held = typename Plain<decltype(element(Vector<T, VEC>(), 0))>::Type;
        static constexpr bool WIDER = MOVES && THREADS * BLOCKS <= 768 && VECTORS * VEC <= 32 && 4 * VECTORS * VEC * THREADS * BLOCKS < 65536;
        const T* p;
        Vector<T, VEC> held[MOVES && !WIDER ? VECTORS : 1], now[VECTORS];
        Held wide[WIDER ? VECTORS : 1][VEC];
        int from[VECTORS];
        T edge;  // beside an element outside of whole vectors

        __device__ void open(const Rounds& walk) {
            if constexpr (MOVES) {
                if (EDGES && walk.has_loose(0)) edge = p[walk.offset(O, walk.loose(0))];
                #pragma unroll
                for (int v = 0; v < VECTORS; v++) {
                    const Chunk c = walk.chunk(walk.base(), walk.end(), v, false);
                    if (!c.some) continue;
                    const Vector<T, VEC> loaded = walk.template load<O>(p, c);
                    if constexpr (WIDER) {
                        #pragma unroll
                        for (int k = 0; k < VEC; k++) wide[v][k] = element(loaded, k);
                    } else {
                        held[v] = loaded;
                    }
                }
            }
        }
        __device__ void send(const Rounds&, Index, bool, unsigned) {}
        __device__ void arrive(const Rounds&) {}
        __device__ void fetch(const Under& walk, const Chunk& c, int v) {
            if constexpr (!MOVES) now[v] = walk.template load<O>(p, c);
        }
        __device__ void take(const Under&, int v, int k) {
            if constexpr (WIDER) from[k] = v;
            else if constexpr (MOVES) now[k] = held[v];
        }
        __device__ Held one(int v, int k) const {
            if constexpr (WIDER) return wide[from[v]][k];
            else return element(now[v], k);
        }
        __device__ T one_loose(const Under& walk, int j) const { return MOVES && EDGES ? edge : p[walk.offset(O, walk.loose(j))]; }
        __device__ void put(const Under&, const Chunk&, int) {}
        __device__ void put_loose(const Under&, int) {}
    };
    // One value a row: where a block or more has a row, sent for as rows are, by a lane of each warp; else read a round before. A register
    // that waits for memory through a round may be put elsewhere, and so waited for.
    template <int O, typename T> struct Ahead {
        static constexpr bool SENT = MOVES && !ACROSS && (TEAM == 0 || TEAM > 32) && (sizeof(T) == 4 || sizeof(T) == 8);
        const T* p;
        T now, then;

        __device__ void open(const Rounds& walk) {
            if constexpr (!SENT) now = then = p[walk.at_row[O]];
        }
        __device__ static unsigned slot(unsigned which) {
            __shared__ T slots[SENT ? AHEAD : 1][SENT ? THREADS / 32 : 1];
            return unsigned(__cvta_generic_to_shared(&slots[which][threadIdx.x / 32]));
        }
        __device__ void send(const Rounds& walk, Index row, bool there, unsigned which) {
            if constexpr (SENT) {
                __syncwarp();  // all lanes have read what was there
                if (there && threadIdx.x % 32 == 0) {
                    const T* source = p + walk.origin(O, row);
                    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(slot(which)), "l"(source), "n"(sizeof(T)) : "memory");
                }
            }
        }
        __device__ void arrive(const Rounds& walk) {
            if constexpr (SENT) {
                __syncwarp();
                now = read_shared<T>(slot(walk.now));
            } else {
                const Index row = walk.to + Index(walk.all_rows.every);
                now = then;
                if (row < walk.rows.rows) then = p[walk.origin(O, row)];
            }
        }
    };
    template <int O, typename T> __device__ Moving<O, T> moving(const T* p) const { return {p, p, 0, 0, 0, {}, {}, {}, 0}; }
    template <int O, typename T> __device__ Same<O, T> same(const T* p) const { return {p, {}, {}, {}, {}, {}}; }
    template <int O, typename T> __device__ Moving<O, T> keep(const T* p) const { return moving<O>(p); }
    template <int O, typename T> __device__ Moving<O, T> input(const T* p) const { return moving<O>(p); }
    template <int O, typename T> __device__ Ahead<O, T> ahead(const T* p) const { return {p, T(), T()}; }

    // ---- columns
    // What a thread adds up over its rows, for each of its elements: after so `few` rows, and at the end, that is added to what it has in
    // registers, where there are enough for as many again, in shared memory, if there is `room` behind the rows, or in memory.
    template <typename Part> struct Columns {
        static constexpr int COUNT = Words<Part>::COUNT, SUMS = VECTORS * VEC * COUNT;
        static constexpr bool TWICE = STAGES > 1 && 2 * SUMS + 48 <= (THREADS * BLOCKS <= 256 ? 255 : 65536 / (THREADS * BLOCKS));
        struct alignas(VEC * COUNT % 4 == 0 ? 16 : 4) Together { unsigned at[VEC][COUNT]; };
        Part at[VECTORS][VEC], total[TWICE ? VECTORS : 1][VEC];
        int from[VECTORS];
        unsigned until = 0;
        bool written = false;

        __device__ void open(const Rounds& walk) { until = unsigned(walk.all_rows.few) + 1; }
        __device__ void send(const Rounds&, Index, bool, unsigned) {}
        __device__ void arrive(const Rounds& walk) {
            if (--until > 0) return;
            if constexpr (TWICE) gather();
            else write(walk, false);
            until = unsigned(walk.all_rows.few);
        }
        __device__ void fetch(const Under&, const Chunk&, int) {}
        __device__ void take(const Under&, int v, int k) { from[k] = v; }
        __device__ Part& one(int v, int k) { return at[from[v]][k]; }
        __device__ Part& one_loose(const Under&, int) { return at[0][0]; }
        __device__ void put(const Under&, const Chunk&, int) {}
        __device__ void put_loose(const Under&, int) {}
        __device__ void gather() {
            #pragma unroll
            for (int v = 0; v < VECTORS; v++) {
                #pragma unroll
                for (int k = 0; k < VEC; k++) {
                    total[TWICE ? v : 0][k].add(at[v][k]);
                    at[v][k] = Part();
                }
            }
        }
        // Where this thread's sums of its v-th vector wait for those of more rows.
        __device__ Together& waiting(const Rounds& walk, Together& place, int v) const {
            if (walk.all_rows.room < SUMS * 4 * slots()) return place;
            extern __shared__ __align__(128) unsigned char row_memory[];
            return reinterpret_cast<Together*>(row_memory + STAGES * walk.kept)[v * slots() + threadIdx.x];
        }
        __device__ void write(const Rounds& walk, bool last) {
            write(walk, last, false, [](const Part&, Index) {});
        }
        // The same, or where one team has `all` rows, at its end, `f` of each column's sum.
        template <typename F> __device__ void write(const Rounds& walk, bool last, bool all, F f) {
            unsigned* partial = walk.partial(walk.own(), COUNT);
            #pragma unroll
            for (int v = 0; v < VECTORS; v++) {
                const Chunk c = walk.chunk(walk.base(), walk.end(), v, false);
                if (!c.some) continue;
                Together& place = *reinterpret_cast<Together*>(partial + u64(c.first) * COUNT);
                Together& before = waiting(walk, place, v);
                Together sums = {};
                if (!TWICE && written) sums = before;
                #pragma unroll
                for (int k = 0; k < VEC; k++) {
                    Part sum = at[v][k];
                    if (TWICE || written) {
                        sum = TWICE ? total[TWICE ? v : 0][k] : Under::load(sums.at[k], Part());
                        sum.add(at[v][k]);
                    }
                    Under::save(sums.at[k], sum);
                    at[v][k] = Part();
                    if (all) f(sum, c.first + k);
                }
                if (!last) before = sums;
                else if (!all) place = sums;
            }
            written = true;
        }
    };
    // Partials of sums, which begin with 0: NVRTC makes zeros of {} here, but for the first, whatever a partial's identity is.
    template <typename Part> __device__ Columns<Part> columns() const { return {}; }
    // The number of this thread's team, and where a team's partials lie.
    __device__ u64 own() const { return to - u64(this->round) * all_rows.every; }
    __device__ unsigned* partial(u64 team, int count) const {
        return this->rows.work + all_rows.columns + team * this->rows.n * count;
    }
    // Write what is left, and add up the teams of a block. Where one team has all rows no launch is behind it: `f` stores what follows.
    template <typename Part, typename F> __device__ void end(Columns<Part>& columns, F f) {
        if constexpr (MOVES) {
            constexpr int COUNT = Words<Part>::COUNT;
            columns.write(*this, true, SEGMENTS && all_rows.every == 1, f);
            if constexpr (Under::TEAMS > 1) {
                __syncthreads();
                const u64 block = first - u64(this->round) * all_rows.every;
                for (Index c = base() * VEC + threadIdx.x; c < end() * VEC; c += this->threads()) {
                    Under::save(partial(block, COUNT) + u64(c) * COUNT, added<Under::TEAMS, Part>(block, c));
                }
            }
        }
    }
    // The partials of some teams for a column, in pairs.
    template <int COUNT, typename Part> __device__ Part added(u64 team, Index column) {
        if constexpr (COUNT == 1) {
            return Under::load(partial(team, Words<Part>::COUNT) + u64(column) * Words<Part>::COUNT, Part());
        } else {
            if (COUNT > Under::teams()) return added<COUNT / 2, Part>(team, column);
            Part sum = added<COUNT / 2, Part>(team, column);
            sum.add(added<COUNT / 2, Part>(team + COUNT / 2, column));
            return sum;
        }
    }
    // The last launch: some threads add up the groups' partials of an element; `f` stores what follows. A thread reads 16 bytes at a time
    // where elements' partials fill them.
    template <typename Part, typename F> __device__ void finish(F f) {
        constexpr int COUNT = Words<Part>::COUNT, SIDE = COUNT == 1 ? 4 : COUNT == 2 ? 2 : 1;
        if (SIDE > 1 && this->rows.n % 4 == 0) finish_side<SIDE, Part>(f);
        else finish_side<1, Part>(f);
    }
    template <int SIDE, typename Part, typename F> __device__ void finish_side(F f) {
        constexpr int COUNT = Words<Part>::COUNT;
        struct alignas(SIDE * COUNT % 4 == 0 ? 16 : 4) Together { unsigned at[SIDE][COUNT]; };
        __shared__ unsigned parts[SIDE * COUNT][THREADS];
        const unsigned groups = unsigned(all_rows.groups), t = threadIdx.x;
        const unsigned teams = groups > 0 ? unsigned(all_rows.every) / groups : 1;
        unsigned lanes = 1;
        while (lanes < 64 && lanes * 8 < groups) lanes *= 2;
        const unsigned each = THREADS / lanes, lane = t / each;
        const Index column = (Index(blockIdx.x) * each + t % each) * SIDE;
        Part sum[SIDE], many[SIDE];
        if (column < this->rows.n) {
            unsigned count = 0;
            for (unsigned g = lane; g < groups; g += 16 * lanes) {
                Part few[SIDE];
                #pragma unroll 4
                for (unsigned u = 0; u < 16 * lanes; u += lanes) {
                    if (g + u >= groups) break;
                    const unsigned* from = partial(u64(g + u) * teams, COUNT) + u64(column) * COUNT;
                    const Together one = *reinterpret_cast<const Together*>(from);
                    #pragma unroll
                    for (int k = 0; k < SIDE; k++) few[k].add(Under::load(one.at[k], Part()));
                }
                #pragma unroll
                for (int k = 0; k < SIDE; k++) many[k].add(few[k]);
                if (++count % 16 != 0) continue;
                #pragma unroll
                for (int k = 0; k < SIDE; k++) {
                    sum[k].add(many[k]);
                    many[k] = Part();
                }
            }
            #pragma unroll
            for (int k = 0; k < SIDE; k++) sum[k].add(many[k]);
        }
        for (unsigned apart = lanes / 2; apart > 0; apart /= 2) {
            #pragma unroll
            for (int k = 0; k < SIDE; k++) {
                const Words<Part> words(sum[k]);
                #pragma unroll
                for (int w = 0; w < COUNT; w++) parts[k * COUNT + w][t] = words.at[w];
            }
            __syncthreads();
            #pragma unroll
            for (int k = 0; k < SIDE; k++) {
                if (lane >= apart) continue;
                Words<Part> other;
                #pragma unroll
                for (int w = 0; w < COUNT; w++) other.at[w] = parts[k * COUNT + w][t + apart * each];
                sum[k].add(other);
            }
            __syncthreads();
        }
        #pragma unroll
        for (int k = 0; k < SIDE; k++) {
            if (lane == 0 && column < this->rows.n) f(sum[k], column + k);
        }
    }
    // Where an element of a row lies in an operand that all rows share.
    template <int O, typename T> __device__ T* along(T* p, Index column) const { return p + this->offset(O, column); }
};
