// Pieces of a row that are reduced by themselves.
#pragma once
#include "kgen_made.cuh"

// An element's magnitude as a part.
template <typename Part> struct Magnitude {
    template <typename X> __device__ Part operator()(X x) const { return Part{fabs(compute<X>(x))}; }
};
// A piece by its number in a row: who takes it, and where what one has of it lies, along the dim of gather g.
template <typename Walk> struct AnyPiece {
    const Walk& walk;
    typename Walk::Place number;
    bool leads;  // whether this thread stores what is one for the piece

    __device__ bool leader() const { return leads; }
    template <int O, typename T> __device__ T* at(T* p, int g) const { return p + walk.at_row[O] + number * walk.rows.gather_stride[g]; }
};
// One whose elements follow one another: THREADS lanes side by side have OWN vectors each.
template <typename Walk, int OWN, int THREADS> struct PieceOfLanes : AnyPiece<Walk> {
    template <typename Part, typename F, typename... In> __device__ Part reduce(F f, In&... in) const {
        Part part;
        #pragma unroll
        for (int k = 0; k < OWN; k++) part.add(Walk::template joined<Part>(k, f, [](Part& a, const Part& b) { a.add(b); }, in...));
        return Walk::template warp<THREADS>(part);
    }
    template <typename Part, typename In> __device__ Part magnitude(In& in) const {
        Part part;
        #pragma unroll
        for (int k = 0; k < OWN; k++) part.add(Part{magnitude_of(in.values(k))});
        return Walk::template warp<THREADS>(part);
    }
    template <typename F, typename... In> __device__ void each(F f, In&... in) const {
        #pragma unroll
        for (int k = 0; k < OWN; k++) {
            #pragma unroll
            for (int e = 0; e < Walk::LANES; e++) f(in.one(k, e)...);
        }
    }
};
// One across the lines of a tile that the TEAM lanes of a warp hold: element `e` of the vectors of every THREADS-th lane.
template <typename Walk, int TEAM, int THREADS> struct PieceAcross : AnyPiece<Walk> {
    int e;

    template <typename Part, typename F, typename... In> __device__ Part reduce(F f, In&... in) const {
        Part part;
        #pragma unroll
        for (int v = 0; v < Walk::TAKEN; v++) part.add(f(in.one(v, e)...));
        #pragma unroll
        for (int apart = THREADS; apart < TEAM; apart *= 2) {
            Words<Part> words(part);
            #pragma unroll
            for (unsigned& word : words.at) word = __shfl_xor_sync(~0u, word, apart);
            part.add(words);
        }
        return part;
    }
    template <typename Part, typename In> __device__ Part magnitude(In& in) const {
        return reduce<Part>(Magnitude<Part>(), in);
    }
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
    template <typename Part, typename In> __device__ Part magnitude(In& in) const {
        return reduce<Part>(Magnitude<Part>(), in);
    }
    template <typename F, typename... In> __device__ void each(F f, In&... in) const {
        for (unsigned e = walk.lane % THREADS; walk.inside && e < SIZE; e += THREADS) {
            f(in.one_at(walk, place(e))...);
            (in.put_at(walk, place(e)), ...);
        }
    }
};

// A walk over rows in pieces, which have two dims, the last of LINE elements: of PIECE elements that follow one another, of which a thread takes
// several vectors; 1 where pieces lie across lines.
template <typename Walk, int PIECE, int LINE> struct Pieces;
template <int THREADS, int BLOCKS, int TEAM, bool ACROSS, int VECTORS, int VEC, bool EDGES, u64 WIDE, int MAIN, bool SEGMENTS, int KEEP,
          bool CLUSTER, int STEP, int RR, int RI, int K, int G, typename Index, int PIECE, int LINE>
struct Pieces<Walk<THREADS, BLOCKS, TEAM, ACROSS, VECTORS, VEC, EDGES, WIDE, MAIN, SEGMENTS, KEEP, CLUSTER, STEP, RR, RI, K, G, Index>, PIECE, LINE>
    : Walk<THREADS, BLOCKS, TEAM, ACROSS, VECTORS, VEC, EDGES, WIDE, MAIN, SEGMENTS, KEEP, CLUSTER, STEP, RR, RI, K, G, Index, PIECE, LINE> {
    using Under = Walk<THREADS, BLOCKS, TEAM, ACROSS, VECTORS, VEC, EDGES, WIDE, MAIN, SEGMENTS, KEEP, CLUSTER, STEP, RR, RI, K, G, Index, PIECE, LINE>;
    using Under::Under, Under::rows, Under::segment, Under::lane, Under::size, Under::inside;

    // How pieces of SIZE elements that are APART are taken.
    template <int SIZE, int APART> struct Ways {
        static constexpr int COUNT = SIZE / VEC, OWN = PIECE == SIZE ? Under::OWN : 1, LANES = COUNT / OWN, ASIDE = APART / VEC;
        static constexpr int TURNS = APART > 1 || ACROSS ? 1 : TEAM == 0 || TEAM > 32 ? 32 : TEAM;
        static constexpr bool BESIDE = Under::PLAIN && APART == 1 && SIZE % VEC == 0 && (COUNT & (COUNT - 1)) == 0 && LANES <= 32 &&
                                       (TEAM == 0 || TEAM % (LANES + !LANES) == 0) && (COUNT <= 32 || !(CLUSTER || SEGMENTS));
        static constexpr bool TILE = Under::PLAIN && APART % VEC == 0 && !SEGMENTS && !CLUSTER && 0 < TEAM && TEAM <= 32 &&
                                     SIZE * APART == TEAM * VECTORS * VEC && TEAM % (ASIDE + !ASIDE) == 0;
        template <bool B, typename X, typename Y> struct Chosen { using Type = X; };
        template <typename X, typename Y> struct Chosen<false, X, Y> { using Type = Y; };
        using Type = typename Chosen<BESIDE, PieceOfLanes<Pieces, OWN, LANES>, typename Chosen<TILE, PieceAcross<Pieces, TEAM, ASIDE>,
                                     PieceInMemory<Pieces, SIZE, APART, TURNS>>::Type>::Type;
    };
    // What `use` makes of all of them; `in` are all operands that it takes or writes.
    template <int SIZE, int APART, typename Use, typename... In> __device__ void pieces(Use use, In&... in) {
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
                    for (int v = 0; v < VECTORS; v += W::OWN) {
                        take<W::OWN>(base, end, v, in...);
                        const auto c = this->chunk(base, end, v, false);
                        use(Piece{{*this, c.first / SIZE, c.some && lane % W::LANES == 0}});
                        put<W::OWN>(base, end, v, in...);
                    }
                    base += size * VECTORS;
                } while (SEGMENTS && base < end);
            }
        } else if constexpr (W::TILE) {
            const Index end = this->end_of(0);
            take<VECTORS>(0, end, 0, in...);
            #pragma unroll
            for (int e = 0; e < VEC; e++) use(Piece{{*this, Index(lane % W::ASIDE * VEC + e), inside && lane < W::ASIDE}, e});
            put<VECTORS>(0, end, 0, in...);
        } else {
            constexpr bool SHARED = CLUSTER || STEP >= 0;
            const Index several = size / W::TURNS * (SHARED ? rows.segments : 1), count = rows.n / SIZE;
            for (Index number = lane / W::TURNS + (SHARED ? segment * (size / W::TURNS) : 0); number < count; number += several) {
                use(Piece{{*this, number, inside && lane % W::TURNS == 0}});
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
