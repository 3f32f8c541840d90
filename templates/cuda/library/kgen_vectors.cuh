// Rows in memory, and vectors of them that begin anywhere.
#pragma once
#include "kgen_memory.cuh"

// Rows in memory: how many, how many elements each has, and where these lie in K operands. The dims are merged, outermost first.
// A row is reduced in segments of `span` vectors; `work` has `slot` words for each of their results where blocks share a row. `wide` and
// `main` are what a walk that is compiled for any has for WIDE and MAIN.
template <int RR, int RI, int K, int G, typename Index> struct Rows {
    Index rows, n, segments, span, misaligned, main;
    Index row_size[RR], size[RI], row_stride[K][RR], stride[K][RI];
    i64 gather_size[G], gather_stride[G];
    u64 wide;
    unsigned* work;
    Index slot;

    // Whether all rows read an operand's same elements: neighbouring blocks then take a segment of different rows, for which these come
    // from memory once.
    __device__ bool share() const {
        bool found = false;
        #pragma unroll
        for (int k = 0; k < K; k++) found = found || row_stride[k][RR - 1] == 0;
        return found;
    }
};

// VEC neighbours as the two aligned vectors that they lie in, from element `over` of the first on: what is loaded is not waited for before
// it is used. Neighbours of which some lie beyond the row are loaded by themselves.
template <typename T, int VEC> struct Halves {
    static constexpr int WORDS = Words<Vector<T, VEC>>::COUNT;
    Vector<unsigned, WORDS> low, high;
    unsigned over;

    // From element `first` on of a row of n elements that begins at p, whose vectors begin with element `head`; it lies at `from`.
    template <typename Index> __device__ Halves& load(const T* p, Index head, Index n, Index first, Index from, Index step) {
        over = unsigned((reinterpret_cast<u64>(p) / sizeof(T) + head) % VEC);
        if (step == 1 && over <= first && first - over + 2 * VEC <= n) {
            const auto* aligned = reinterpret_cast<const Vector<unsigned, WORDS>*>(p + (first - over));
            low = aligned[0];
            high = aligned[1];
        } else {
            over = 0;
            const Words<Vector<T, VEC>> words(apart<T, VEC>(p + from, step));
            #pragma unroll
            for (int k = 0; k < WORDS; k++) low.at[k] = words.at[k];
        }
        return *this;
    }
    __device__ Vector<T, VEC> whole() const { return shifted<T, VEC>(low, high, over); }
};

// A vector that has one element in its first places, so many at most, and another in those that follow.
template <typename T, int VEC, typename Index> struct Parted {
    T low, high;
    Index many;

    __device__ auto one(int k) const {
        const auto first = element(Vector<T, 1>{low}, 0), second = element(Vector<T, 1>{high}, 0);
        return Index(k) < many ? first : second;
    }
    __device__ Vector<T, VEC> whole() const {
        const Words<T> first(low), second(high);
        Vector<T, VEC> v;
        #pragma unroll
        for (int k = 0; k < VEC; k++) {
            Words<T> own;
            #pragma unroll
            for (int w = 0; w < own.COUNT; w++) own.at[w] = Index(k) < many ? first.at[w] : second.at[w];
            v.at[k] = own;
        }
        return v;
    }
};

// That of an operand that stands still along a row's innermost dim, from element `first` of the row on: of one element, or where vectors go over
// the ends of lines, which have as many elements as these at least, of one for each of two lines.
template <int O, typename T, typename Walk>
__device__ inline Parted<T, Walk::LANES, typename Walk::Place> parted(const Walk& walk, const T* p, typename Walk::Place first) {
    constexpr int VEC = Walk::LANES, LAST = Walk::RANK - 1;
    using Place = typename Walk::Place;
    if constexpr (Walk::STRADDLES) {
        const Place line = walk.rows.size[LAST], left = line - first % line, at = walk.offset(O, first);
        return {p[at], p[LAST == 1 ? at + (left < VEC ? walk.rows.stride[O][0] : Place(0)) : walk.offset(O, first + VEC - 1)], left};
    } else {
        const T only = p[walk.offset(O, first)];
        return {only, only, VEC};
    }
}

// What an element adds to sums about a maximum, as a function of the element alone.
template <typename Part, typename About> struct Sums {
    const Part& top;
    const About& about;
    template <typename... X> __device__ Part operator()(X... x) const { return about(top, x...); }
};
// A position along a dim, `by` from where a vector begins. What it is compared with is taken from there once a vector.
template <typename Index> struct Spot {
    Index from, by;

    __device__ operator i64() const { return i64(Index(from + by)); }
    __device__ bool is(i64 place) const { return Index(place) - from == by && u64(place) <= u64(Index(-1)); }
};
template <typename Index> __device__ inline bool operator==(const Spot<Index>& a, i64 b) { return a.is(b); }
template <typename Index> __device__ inline bool operator!=(const Spot<Index>& a, i64 b) { return !a.is(b); }
// An element's position along a dim: worked out where it is asked for, as registers for all would be many.
template <typename Walk, int O> struct Position {
    using Index = typename Walk::Place;
    Index from[Walk::TAKEN], step;

    template <typename C> __device__ void fetch(const Walk& walk, const C& c, int v) {
        from[v] = walk.at_row[O] + walk.offset(O, c.first);
        step = walk.rows.stride[O][walk.RANK - 1];
    }
    __device__ void take(const Walk&, int, int) {}
    __device__ Spot<Index> one(int v, int k) const { return {from[v], Index(k * step)}; }
    __device__ Spot<Index> one_loose(const Walk& walk, int j) const { return one_at(walk, walk.loose(j)); }
    __device__ Spot<Index> one_at(const Walk& walk, Index i) const { return {walk.at_row[O] + walk.offset(O, i), 0}; }
    template <typename C> __device__ void put(const Walk&, const C&, int) {}
    __device__ void put_loose(const Walk&, int) {}
};

// Two such functions, of which a number of the call says which is meant.
template <typename A, typename B> struct Either {
    bool first;
    const A& a;
    const B& b;
};
template <typename A, typename B> __device__ Either<A, B> either(bool first, const A& a, const B& b) { return {first, a, b}; }
// A reading's function, and beside it what the element at one place, which others are not asked for, adds to a part.
template <typename F, typename Add> struct Picking {
    i64 place;
    const F& of;
    const Add& add;
    template <typename... X> __device__ auto operator()(X&&... x) const { return of(x...); }
};
template <typename F, typename Add> __device__ Picking<F, Add> picking(i64 place, const F& of, const Add& add) { return {place, of, add}; }
// What adds that to a row's part: the row's first thread, which asks for the element here, before it waits for its others.
template <typename Part, typename Add, typename... X> __device__ auto adding_of(bool mine, const Add& add, X... x) {
    return [=, &add](Part& part) { if (mine) add(part, x...); };
}
template <typename Part, typename Walk, typename F, typename... In> __device__ auto picked(const Walk&, const F&, const In&...) { return [](Part&) {}; }
template <typename Walk, typename In> __device__ auto one_or_none(const Walk& walk, const In& in, bool mine, typename Walk::Place place) {
    auto x = decltype(in.one_at(walk, place))();
    if (mine) x = in.one_at(walk, place);
    return x;
}
template <typename Part, typename Walk, typename F, typename Add, typename... In>
__device__ auto picked(const Walk& walk, const Picking<F, Add>& f, const In&... in) {
    const bool mine = walk.lane == 0 && walk.segment == 0 && u64(f.place) < u64(walk.rows.n);
    return adding_of<Part>(mine, f.add, one_or_none(walk, in, mine, f.place)...);
}
// One that adds to a part what an element gives, rounded with it.
template <typename F> struct Adding { const F& add; };
template <typename F> __device__ Adding<F> adding(const F& add) { return {add}; }
template <typename Part, typename About, typename... X> __device__ inline Part share(const Part& top, const About& about, X... x) {
    return about(top, x...);
}
template <typename Part, typename F, typename... X> __device__ inline Part share(const Part& top, const Adding<F>& about, X... x) {
    Part part;
    about.add(part, top, x...);
    return part;
}
template <typename Part, typename A, typename B, typename... X>
__device__ inline Part share(const Part& top, const Either<A, B>& about, X... x) {
    return about.first ? about.a(top, x...) : about.b(top, x...);
}

// The greater of each of two 16-bit floats, 0 above -0; NaN if one is.
__device__ inline void raise(const bf16* p, unsigned& a, unsigned b) { asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b)); }
__device__ inline void raise(const f16* p, unsigned& a, unsigned b) { asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b)); }
// Of the functions, which may stand behind the library.
template <typename T> __device__ inline T greatest(T a, T b);
__device__ inline float greatest(float a, float b);
__device__ inline double greatest(double a, double b);
// The greatest element of COUNT vectors, likewise, of 16 bits two at a time, which need not be taken apart.
template <int COUNT, typename T, int VEC> __device__ inline compute<T> greatest_of(const Vector<T, VEC>* v) {
    if constexpr (sizeof(T) == 2 && VEC % 2 == 0) {
        Words<Vector<T, VEC>> words[COUNT];
        constexpr int EACH = VEC / 2;
        #pragma unroll
        for (int k = 0; k < COUNT; k++) words[k] = Words<Vector<T, VEC>>(v[k]);
        #pragma unroll
        for (int apart = 1; apart < COUNT * EACH; apart *= 2) {
            #pragma unroll
            for (int k = 0; k + apart < COUNT * EACH; k += 2 * apart) {
                raise(v[0].at, words[k / EACH].at[k % EACH], words[(k + apart) / EACH].at[(k + apart) % EACH]);
            }
        }
        Vector<T, 2> two;
        memcpy(&two, words[0].at, 4);
        return greatest(compute<T>(element(two, 0)), compute<T>(element(two, 1)));
    } else {
        compute<T> most[COUNT * VEC];
        #pragma unroll
        for (int k = 0; k < COUNT * VEC; k++) most[k] = element(v[k / VEC], k % VEC);
        #pragma unroll
        for (int apart = 1; apart < COUNT * VEC; apart *= 2) {
            #pragma unroll
            for (int k = 0; k + apart < COUNT * VEC; k += 2 * apart) most[k] = greatest(most[k], most[k + apart]);
        }
        return most[0];
    }
}
// The greatest magnitude in a vector, likewise.
template <typename T, int VEC> __device__ inline compute<T> magnitude_of(const Vector<T, VEC>& v) {
    Words<Vector<T, VEC>> words(v);
    #pragma unroll
    for (int k = 0; k < words.COUNT; k++) {
        if (sizeof(T) == 2 && VEC % 2 == 0) words.at[k] &= 0x7fff7fff;
        else if (sizeof(T) != 8 || k % 2) words.at[k] &= sizeof(T) == 2 ? 0x7fff : 0x7fffffff;
    }
    const Vector<T, VEC> sizes = words;
    return greatest_of<1>(&sizes);
}
// The K-th of some operands.
template <int K, typename A, typename... B> __device__ inline auto& picked(A& a, B&... b) {
    if constexpr (K == 0) return a;
    else return picked<K - 1>(b...);
}
