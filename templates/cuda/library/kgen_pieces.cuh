// Pieces of a row that are reduced by themselves.
#pragma once
#include "kgen_made.cuh"

// An element's magnitude as a part.
template <typename Part> struct Magnitude {
    template <typename X> __device__ Part operator()(X x) const { return Part{fabs(compute<X>(x))}; }
};
// The parts of COUNT pieces, which as many lanes (every APART-th) have some elements of each, as one of each lane's own.
template <int COUNT, int APART, typename Part> __device__ inline Part dealt(Part (&part)[COUNT], unsigned lane) {
    #pragma unroll
    for (int half = COUNT / 2; half > 0; half /= 2) {
        const bool upper = lane / APART & half;
        #pragma unroll
        for (int k = 0; k < half; k++) {
            Words<Part> kept(part[k]), sent(part[k + half]);
            #pragma unroll
            for (int w = 0; w < kept.COUNT; w++) {
                const unsigned low = kept.at[w], high = sent.at[w];
                kept.at[w] = upper ? high : low;
                sent.at[w] = __shfl_xor_sync(~0u, upper ? low : high, half * APART);
            }
            part[k] = kept;
            part[k].add(sent);
        }
    }
    return part[0];
}
// A lane's value in each of them.
template <typename T> __device__ inline T told(const T& value, unsigned lane) {
    Words<T> words(value);
    #pragma unroll
    for (unsigned& word : words.at) word = __shfl_sync(~0u, word, lane);
    return words;
}
// A piece by its number in a row: who takes it, and where what one has of it lies, along the dim of gather g.
template <typename Walk> struct AnyPiece {
    const Walk& walk;
    typename Walk::Place number;
    bool leads;  // whether this thread stores what is one for the piece

    __device__ bool leader() const { return leads; }
    template <int O, typename T> __device__ T* at(T* p, int g) const { return p + walk.at_row[O] + number * walk.rows.gather_stride[g]; }
};
// One whose elements follow one another: THREADS lanes side by side have OWN vectors each; of MANY pieces each lane leads one, or all of one.
template <typename Walk, int OWN, int THREADS, int MANY> struct PieceOfLanes : AnyPiece<Walk> {
    int first;  // of the vectors that are its

    template <typename Part, typename Get> __device__ Part parts(Get get) const {
        Part part[MANY];
        #pragma unroll
        for (int k = 0; k < MANY * OWN; k++) part[k / OWN].add(get(k));
        Part own = dealt<MANY, 1>(part, this->walk.lane);
        #pragma unroll
        for (int apart = MANY; apart < THREADS; apart *= 2) {
            Words<Part> words(own);
            #pragma unroll
            for (unsigned& word : words.at) word = __shfl_xor_sync(~0u, word, apart);
            own.add(words);
        }
        return own;
    }
    template <typename Part, typename F, typename... In> __device__ Part reduce(F f, In&... in) const {
        return parts<Part>([&](int k) { return Walk::template joined<Walk::LANES, Part>(k, f, [](Part& a, const Part& b) { a.add(b); }, in...); });
    }
    template <typename Part, typename In> __device__ Part magnitude(In& in) const {
        return parts<Part>([&](int k) { return Part{magnitude_of(in.values(k))}; });
    }
    template <typename F, typename... In> __device__ void each(F f, In&... in) const {
        #pragma unroll
        for (int k = 0; k < OWN; k++) {
            #pragma unroll
            for (int e = 0; e < Walk::LANES; e++) f(in.one(first + k, e)...);
        }
    }
};
// One across the lines of a tile, which a team holds: an element of the vectors of every APART-th of its threads, of which each leads one.
template <typename Walk, int APART> struct PieceAcross : AnyPiece<Walk> {
    int e;

    template <typename Part, typename F, typename... In> __device__ Part reduce(F f, In&... in) const {
        Part part[Walk::LANES];
        #pragma unroll
        for (int k = 0; k < Walk::LANES; k++) {
            #pragma unroll
            for (int v = 0; v < Walk::TAKEN; v++) part[k].add(f(in.one(v, k)...));
        }
        if constexpr (Walk::BESIDE_OTHERS) return this->walk.gathered_part(part);
        else return dealt<Walk::LANES, APART>(part, this->walk.lane);
    }
    template <typename Part, typename In> __device__ Part magnitude(In& in) const { return reduce<Part>(Magnitude<Part>(), in); }
    template <typename F, typename... In> __device__ void each(F f, In&... in) const {
        #pragma unroll
        for (int v = 0; v < Walk::TAKEN; v++) f(in.one(v, e)...);
    }
};
// Any: SIZE elements, APART from one another, which THREADS lanes read from memory in turns.
template <typename Walk, int SIZE, int APART, int THREADS> struct PieceInMemory : AnyPiece<Walk> {
    using AnyPiece<Walk>::walk, AnyPiece<Walk>::number;

    __device__ auto place(unsigned e) const { return number / APART * (SIZE * APART) + number % APART + e * APART; }
    template <typename Part, typename F, typename... In> __device__ Part reduce(F f, In&... in) const {
        Part part;
        for (unsigned e = walk.lane % THREADS; e < SIZE; e += THREADS) part.add(f(in.one_at(walk, place(e))...));
        return Walk::template warp<THREADS>(part);
    }
    template <typename Part, typename In> __device__ Part magnitude(In& in) const { return reduce<Part>(Magnitude<Part>(), in); }
    template <typename F, typename... In> __device__ void each(F f, In&... in) const {
        for (unsigned e = walk.lane % THREADS; walk.inside && e < SIZE; e += THREADS) {
            f(in.one_at(walk, place(e))...);
            (in.put_at(walk, place(e)), ...);
        }
    }
};

// A walk over rows in pieces, which have two dims, the last of LINE elements: of PIECE elements that follow one another, of which a thread takes
// several vectors; 1 where pieces lie across lines. Where such rows are TILES, of which nothing else is made, the teams of a block take their
// lines together, those of tiles side by side one after the other: so that more of a line moves at a time than a tile has.
template <typename Walk, int PIECE, int LINE, bool TILES = false> struct Pieces;
template <int THREADS, int BLOCKS, int TEAM, bool ACROSS, int VECTORS, int VEC, bool EDGES, u64 WIDE, int MAIN, bool SEGMENTS, int KEEP,
          bool CLUSTER, int STEP, int RR, int RI, int K, int G, typename Index, int PIECE, int LINE, bool TILES>
struct Pieces<Walk<THREADS, BLOCKS, TEAM, ACROSS, VECTORS, VEC, EDGES, WIDE, MAIN, SEGMENTS, KEEP, CLUSTER, STEP, RR, RI, K, G, Index>, PIECE, LINE, TILES>
    : Walk<THREADS, BLOCKS, TEAM, ACROSS, VECTORS, VEC, EDGES, WIDE, MAIN, SEGMENTS, KEEP, CLUSTER, STEP, RR, RI, K, G, Index, PIECE, LINE> {
    using Under = Walk<THREADS, BLOCKS, TEAM, ACROSS, VECTORS, VEC, EDGES, WIDE, MAIN, SEGMENTS, KEEP, CLUSTER, STEP, RR, RI, K, G, Index, PIECE, LINE>;
    using Under::rows, Under::segment, Under::lane, Under::size, Under::inside;
    static constexpr int CHUNKS = LINE / VEC, TEAMS = Under::TEAMS;  // of a line
    static constexpr bool BESIDE_OTHERS = TILES && Under::PLAIN && LINE % VEC == 0 && !SEGMENTS && !CLUSTER && TEAM == CHUNKS * VEC && TEAMS > 1;

    __device__ explicit Pieces(const typename Under::Layout& rows) : Under(rows) {
        if constexpr (BESIDE_OTHERS) {
            lane = threadIdx.x / (CHUNKS * TEAMS) * CHUNKS + threadIdx.x % CHUNKS;
            this->go(this->group * TEAMS + threadIdx.x / CHUNKS % TEAMS);
        }
    }
    // The thread of this one's tile that has a lane's vectors.
    __device__ unsigned thread(unsigned of) const {
        return of / CHUNKS * (CHUNKS * TEAMS) + threadIdx.x / CHUNKS % TEAMS * CHUNKS + of % CHUNKS;
    }
    // Of the parts of VEC pieces, which the threads of a tile's team have across its lines, this thread's own.
    template <typename Part> __device__ Part gathered_part(const Part (&part)[VEC]) const {
        __shared__ unsigned parts[Words<Part>::COUNT][VEC][THREADS];
        #pragma unroll
        for (int k = 0; k < VEC; k++) {
            const Words<Part> words(part[k]);
            #pragma unroll
            for (int w = 0; w < words.COUNT; w++) parts[w][k][threadIdx.x] = words.at[w];
        }
        __syncthreads();
        Part own;
        #pragma unroll
        for (int line = 0; line < VEC; line++) {
            Words<Part> words;
            #pragma unroll
            for (int w = 0; w < words.COUNT; w++) words.at[w] = parts[w][lane / CHUNKS][thread(line * CHUNKS + lane % CHUNKS)];
            own.add(words);
        }
        return own;
    }

    // How pieces of SIZE elements that are APART are taken.
    template <int SIZE, int APART> struct Ways {
        static constexpr int COUNT = SIZE / VEC, OWN = PIECE == SIZE ? Under::OWN : 1, LANES = COUNT / OWN, ASIDE = APART / VEC;
        // Pieces at a time, of which lanes that take part in all lead one each.
        static constexpr int MANY = OWN > 1 || VECTORS % (LANES + !LANES) != 0 ? 1 : LANES;
        static constexpr int TURNS = APART > 1 || ACROSS ? 1 : TEAM == 0 || TEAM > 32 ? 32 : TEAM;
        static constexpr bool BESIDE = Under::PLAIN && APART == 1 && SIZE % VEC == 0 && (COUNT & (COUNT - 1)) == 0 && LANES <= 32 &&
                                       (TEAM == 0 || TEAM % (LANES + !LANES) == 0) && (COUNT <= 32 || !(CLUSTER || SEGMENTS));
        static constexpr bool TILE = Under::PLAIN && APART % VEC == 0 && !SEGMENTS && !CLUSTER && 0 < TEAM && TEAM <= 32 && APART == LINE &&
                                     SIZE * APART == TEAM * VECTORS * VEC && TEAM == ASIDE * VEC;
        template <bool B, typename X, typename Y> struct Chosen { using Type = X; };
        template <typename X, typename Y> struct Chosen<false, X, Y> { using Type = Y; };
        using Type = typename Chosen<BESIDE, PieceOfLanes<Pieces, OWN, LANES, MANY>, typename Chosen<TILE, PieceAcross<Pieces, ASIDE>,
                                     PieceInMemory<Pieces, SIZE, APART, TURNS>>::Type>::Type;
    };
    // All of them: `use` makes an Own of each, which `each` takes to go by its elements; `in` are all operands that these take or write.
    template <int SIZE, int APART, typename Own, typename Use, typename Each, typename... In> __device__ void pieces(Use use, Each each, In&... in) {
        using W = Ways<SIZE, APART>;
        using Piece = typename W::Type;
        if constexpr (KEEP == 2) asm volatile("cp.async.wait_all;" ::: "memory");
        if constexpr (W::BESIDE) {
            const Index last = SEGMENTS && STEP < 0 ? rows.segments : segment + 1;
            for (Index s = segment; s < last; s++) {
                const Index end = this->end_of(s);
                Index base = s * rows.span;
                do {
                    #pragma unroll (Under::IN_ONE)
                    for (int v = 0; v < VECTORS; v += W::OWN * W::MANY) {
                        take<W::OWN * W::MANY>(base, end, v, in...);
                        const auto c = this->chunk(base, end, v + lane % W::MANY, false);
                        const Own own = use(Piece{{*this, c.first / SIZE, c.some && lane % W::LANES < W::MANY}, 0});
                        #pragma unroll
                        for (int k = 0; k < W::MANY; k++) {
                            each(Piece{{*this, 0, false}, k * W::OWN}, W::MANY > 1 ? told(own, threadIdx.x % 32 / W::MANY * W::MANY + k) : own);
                        }
                        put<W::OWN * W::MANY>(base, end, v, in...);
                    }
                    base += size * VECTORS;
                } while (SEGMENTS && base < end);
            }
        } else if constexpr (W::TILE) {
            const Index end = this->end_of(0);
            take<VECTORS>(0, end, 0, in...);
            const Own own = use(Piece{{*this, Index(lane % W::ASIDE * VEC + lane / W::ASIDE), inside}, 0});
            __shared__ Vector<unsigned, Words<Own>::COUNT> owns[BESIDE_OTHERS ? THREADS : 1];
            if constexpr (BESIDE_OTHERS) {
                const Words<Own> words(own);
                memcpy(&owns[threadIdx.x], words.at, sizeof(words.at));
                __syncthreads();
            }
            #pragma unroll
            for (int e = 0; e < VEC; e++) {
                const unsigned of = lane % W::ASIDE + e * W::ASIDE;
                if constexpr (BESIDE_OTHERS) {
                    Words<Own> words;
                    memcpy(words.at, &owns[thread(of)], sizeof(words.at));
                    each(Piece{{*this, 0, false}, e}, Own(words));
                } else {
                    each(Piece{{*this, 0, false}, e}, told(own, threadIdx.x % 32 / TEAM * TEAM + of));
                }
            }
            put<VECTORS>(0, end, 0, in...);
        } else {
            constexpr bool SHARED = CLUSTER || STEP >= 0;
            const Index several = size / W::TURNS * (SHARED ? rows.segments : 1), count = rows.n / SIZE;
            for (Index number = lane / W::TURNS + (SHARED ? segment * (size / W::TURNS) : 0); number < count; number += several) {
                const Piece piece{{*this, number, inside && lane % W::TURNS == 0}};
                each(piece, use(piece));
            }
        }
    }
    // COUNT vectors from a thread's v-th on: fetched and taken, and what was made of them written.
    template <int COUNT, typename... In> __device__ void take(Index base, Index end, int v, In&... in) {
        #pragma unroll
        for (int k = 0; k < COUNT; k++) {
            const auto c = this->chunk(base, end, v + k, false);
            if (c.some) (in.fetch(*this, c, k), ...);
        }
        #pragma unroll
        for (int k = 0; k < COUNT; k++) (in.take(*this, v + k, k), ...);
        if (v + COUNT == VECTORS) (mark(in, 0), ...);
    }
    template <int COUNT, typename... In> __device__ void put(Index base, Index end, int v, In&... in) {
        #pragma unroll
        for (int k = 0; k < COUNT; k++) {
            const auto c = this->chunk(base, end, v + k, false);
            if (c.some) (in.put(*this, c, k), ...);
        }
    }
};
template <typename Walk, int SIZE, int APART> using Piece = typename Walk::template Ways<SIZE, APART>::Type;
