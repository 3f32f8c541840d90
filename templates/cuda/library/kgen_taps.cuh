// Neighbours that a map reads: elements so far along a dim, or what stands outside.
#pragma once
#include "kgen_maps.cuh"
#include "kgen_memory.cuh"

// The size of the dim of which operand I is the index (0 where it is 1), and the stride of operand K along it.
template <int RANK, int N, typename Index> __device__ inline Index extent(const Layout<RANK, N, Index>& layout, int i) {
    Index size = 0;
    #pragma unroll
    for (int d = 0; d < RANK; d++) size += layout.size[d] * layout.stride[i][d];
    return size;
}
template <int RANK, int N, typename Index> __device__ inline i64 stride_along(const Layout<RANK, N, Index>& layout, int k, int i) {
    Index stride = 0;
    #pragma unroll
    for (int d = 0; d < RANK; d++) stride += layout.stride[k][d] * layout.stride[i][d];
    return i64(stride);
}
template <typename Layout> struct Flat { static constexpr bool IS = false; };
template <int N, typename Index> struct Flat<Layout<1, N, Index>> { static constexpr bool IS = true; };

// BY elements along the dim of which operand INDEX is the index; the vector's first element has the index `at` there.
template <int INDEX, i64 BY, typename Index> struct Shift {
    Index at;

    // Whether the element `by` further on lies inside `size`.
    static __device__ bool inside(Index at, Index size, i64 by) {
        return by == 0 || (by < 0 ? at >= Index(-by) : at < size && size - at > Index(by));
    }
};
template <int INDEX, i64 BY, typename Index> __device__ inline Shift<INDEX, BY, Index> shift(Index at) { return {at}; }

// BY rows below the r-th of a thread's ROWS, which lie one below the other from that with the index `first` on: what several of them read is
// read once. WITHIN: it is known to be there.
template <int INDEX, bool WITHIN> struct Below {
    i64 first;
    int by;
};
template <int INDEX, i64 BY, int ROWS, bool WITHIN, typename Index> __device__ inline auto below(Index first, int r) {
    if constexpr (ROWS == 1) return shift<INDEX, BY>(first);
    else return Below<INDEX, WITHIN>{i64(first), r + int(BY)};
}

// As many as are known at run time; beyond either end from the other one on, where it WRAPS.
template <int INDEX, bool WRAPS, typename Index> struct Move {
    Index at;
    u64 by;

    // The place of the k-th element of the vector.
    __device__ i64 place(int k, i64 size) const {
        i64 e = i64(u64(at) + u64(k) + by);
        if (WRAPS && (e < 0 || e >= size)) {
            e %= size;
            if (e < 0) e += size;
        }
        return e;
    }
};
template <int INDEX, bool WRAPS, typename Index> __device__ inline Move<INDEX, WRAPS, Index> move(Index at, u64 by) { return {at, by}; }

// The place (TIMES * index + BY) / OVER along a dim of `size` elements, where a tensor has a `stride`; the index `at` is that along another.
// WITHIN: it is known to lie inside; SOME: there are elements, of which the first is read where it does not. Pointers stand at `origin`.
template <i64 TIMES, i64 BY, i64 OVER> __device__ inline i64 window_place(i64 at) {
    constexpr i64 REST = (BY % OVER + OVER) % OVER;
    return OVER == 1 ? TIMES * at + BY : i64(u64(TIMES * at + REST) / u64(OVER)) + (BY - REST) / OVER;
}
template <i64 TIMES, i64 BY, i64 OVER, bool WITHIN, bool SOME> struct Window {
    i64 at, size, stride, origin;

    __device__ i64 place() const { return window_place<TIMES, BY, OVER>(at); }
    __device__ bool inside(i64 place) const { return WITHIN || u64(place) < u64(size); }
};
template <i64 TIMES, i64 BY, i64 OVER, bool WITHIN, bool SOME, typename Index>
__device__ inline Window<TIMES, BY, OVER, WITHIN, SOME> window_at(Index at, i64 size, i64 stride, i64 origin = 0) {
    return {i64(at), size, stride, origin};
}
// A pointer from which windows are counted, as one value: of its parts the compiler would make the address of each line anew, in six
// instructions, not two.
template <typename T> __device__ inline const T* anchored(const T* p) {
    asm("" : "+l"(p));
    __builtin_assume(__isGlobal(p));
    return p;
}
// Whether something holds for all threads of a warp that come here at once: where it does not, those for which it does go the others' way, so
// that the warp goes one.
__device__ inline bool together(bool holds) { return __all_sync(__activemask(), holds); }
// Whether the places from that with LOW up to that with HIGH lie inside, of so many ROWS.
template <i64 TIMES, i64 LOW, i64 HIGH, i64 OVER, int ROWS = 1> __device__ inline bool within(i64 at, i64 size) {
    return window_place<TIMES, LOW, OVER>(at) >= 0 && window_place<TIMES, HIGH, OVER>(at + ROWS - 1) < size;
}
// The index of the r-th of ROWS rows one below the other: that of the first is a multiple of ROWS, and the compiler knows its last bits.
template <int ROWS, typename Index> __device__ inline i64 row_at(Index first, int r) { return i64(first / ROWS * ROWS) + r; }

// The lines FIRST to LAST of what rows one below the other read, by how far each lies behind that of the first of these rows: what several
// of the rows read is read once.
template <typename V, int FIRST, int COUNT> struct LinesRead {
    V line[COUNT];
    __device__ const V& operator[](int h) const { return line[h - FIRST]; }
};
template <int FIRST, int LAST, typename Make> __device__ inline auto lines(Make make) {
    LinesRead<decltype(make(0)), FIRST, LAST - FIRST + 1> v;
    #pragma unroll
    for (int h = FIRST; h <= LAST; h++) v.line[h - FIRST] = make(h);
    return v;
}

// What taps give, in the type that they are computed in.
template <typename F, int LANES> struct Lanes { F at[LANES]; };

// Move `p` by shifts along dims that stand still along a vector, unless that lies outside.
template <int K, typename Layout, typename T, typename... S>
__device__ inline void aside(const Layout& layout, const T*& p, bool& inside, S...) {}
template <int K, typename Layout, typename T, int INDEX, i64 BY, typename Index, typename... S>
__device__ inline void aside(const Layout& layout, const T*& p, bool& inside, Shift<INDEX, BY, Index> by, S... more) {
    const bool here = by.inside(by.at, extent(layout, INDEX), BY);
    if (here) p += BY * stride_along(layout, K, INDEX);
    inside = inside && here;
    aside<K>(layout, p, inside, more...);
}
template <int K, typename Layout, typename T, int INDEX, bool WITHIN, typename... S>
__device__ inline void aside(const Layout& layout, const T*& p, bool& inside, Below<INDEX, WITHIN> by, S... more) {
    const i64 row = by.first + by.by;
    const bool here = WITHIN || (row >= 0 && row < i64(extent(layout, INDEX)));
    if (here) p += by.by * i64(layout.under(K, 1));
    inside = inside && here;
    aside<K>(layout, p, inside, more...);
}
template <int K, typename Layout, typename T, int INDEX, bool WRAPS, typename Index, typename... S>
__device__ inline void aside(const Layout& layout, const T*& p, bool& inside, Move<INDEX, WRAPS, Index> by, S... more) {
    const i64 size = extent(layout, INDEX), e = by.place(0, size > 0 ? size : 1);
    const bool here = e >= 0 && e < (size > 0 ? size : 1);
    if (here) p += (e - i64(by.at)) * stride_along(layout, K, INDEX);
    inside = inside && here;
    aside<K>(layout, p, inside, more...);
}

// The aligned vector AWAY vectors further on along a row, in which the own one begins at `at` of `size`: of FLAT rows the last may be a part.
template <int AWAY, bool FLAT, typename F, int LANES, typename T, typename Index>
__device__ inline Lanes<F, LANES> vector_at(const T* p, Index at, Index size, bool inside, F fill) {
    constexpr i64 BY = i64(AWAY) * LANES;
    Lanes<F, LANES> found;
    const bool first = inside && (AWAY == 0 || Shift<0, BY, Index>::inside(at, size, BY));  // the own vector is there
    if (FLAT && AWAY > 0 && !Shift<0, BY, Index>::inside(at, size, BY + LANES - 1)) {
        #pragma unroll
        for (int k = 0; k < LANES; k++) found.at[k] = inside && Shift<0, BY, Index>::inside(at, size, BY + k) ? F(p[BY + k]) : fill;
        return found;
    }
    const auto v = *reinterpret_cast<const Vector<T, LANES>*>(first ? p + BY : p);
    #pragma unroll
    for (int k = 0; k < LANES; k++) found.at[k] = first ? F(element(v, k)) : fill;
    return found;
}

// LANES neighbours of operand K, `shifts` from those at p; `fill` where that is outside. The pieces of a vector that begins within
// another are taken out of the two aligned ones that it lies in; taps of one operand share these.
template <typename F, int LANES, u64 SPLAT, int K, typename Layout, typename T>
__device__ inline Lanes<F, LANES> tap_of(const Layout& layout, const T* p, bool inside, F fill) {
    const auto v = load<LANES, SPLAT, K>(layout, p);
    Lanes<F, LANES> found;
    #pragma unroll
    for (int k = 0; k < LANES; k++) found.at[k] = inside ? F(element(v, k)) : fill;
    return found;
}
template <typename F, int LANES, u64 SPLAT, int K, typename Layout, typename T, int INDEX, i64 BY, typename Index, typename... S>
__device__ inline Lanes<F, LANES> tap_of(const Layout& layout, const T* p, bool inside, F fill, Shift<INDEX, BY, Index> by, S... more) {
    constexpr bool STILL = LANES == 1 || (SPLAT != GIVEN && SPLAT >> INDEX % 64 & 1);
    if constexpr (!STILL) {
        if (SPLAT != GIVEN || layout.step(INDEX) != 0) {  // along the vector
            aside<K>(layout, p, inside, more...);
            const Index size = extent(layout, INDEX);
            Lanes<F, LANES> found;
            if ((SPLAT >> K % 64 & 1) && layout.step(K) == 0) {  // the same all along
                const T one = *p;
                #pragma unroll
                for (int k = 0; k < LANES; k++) found.at[k] = inside && by.inside(by.at + k, size, BY) ? F(one) : fill;
                return found;
            }
            constexpr int AWAY = int(BY >= 0 ? BY / LANES : -((LANES - 1 - BY) / LANES)), OVER = int(BY - i64(AWAY) * LANES);
            constexpr bool FLAT = Flat<Layout>::IS || SPLAT == GIVEN;
            const auto low = vector_at<AWAY, FLAT, F, LANES>(p, by.at, size, inside, fill);
            const auto high = vector_at<AWAY + (OVER > 0), FLAT, F, LANES>(p, by.at, size, inside, fill);
            #pragma unroll
            for (int k = 0; k < LANES; k++) found.at[k] = k + OVER < LANES ? low.at[k + OVER] : high.at[k + OVER - LANES];
            return found;
        }
    }
    const bool here = by.inside(by.at, extent(layout, INDEX), BY);
    if (here) p += BY * stride_along(layout, K, INDEX);
    return tap_of<F, LANES, SPLAT, K>(layout, p, inside && here, fill, more...);
}
template <typename F, int LANES, u64 SPLAT, int K, typename Layout, typename T, int INDEX, bool WITHIN>
__device__ inline Lanes<F, LANES> tap_of(const Layout& layout, const T* p, bool inside, F fill, Below<INDEX, WITHIN> by) {
    aside<K>(layout, p, inside, by);
    return tap_of<F, LANES, SPLAT, K>(layout, p, inside, fill);
}
// By how far is known at run time: the vector's elements are neighbours, but where a row ends.
template <typename F, int LANES, u64 SPLAT, int K, typename Layout, typename T, int INDEX, bool WRAPS, typename Index, typename... S>
__device__ inline Lanes<F, LANES> tap_of(const Layout& layout, const T* p, bool inside, F fill, Move<INDEX, WRAPS, Index> by, S... more) {
    constexpr bool STILL = LANES == 1 || (SPLAT != GIVEN && SPLAT >> INDEX % 64 & 1);
    const i64 known = extent(layout, INDEX), size = known > 0 ? known : 1, begin = by.place(0, size);
    if constexpr (!STILL) {
        if (SPLAT != GIVEN || layout.step(INDEX) != 0) {  // along the vector
            aside<K>(layout, p, inside, more...);
            Lanes<F, LANES> found;
            const i64 step = layout.step(K);
            if constexpr (LANES * sizeof(T) >= 4) {
                constexpr bool FLAT = Flat<Layout>::IS || SPLAT == GIVEN;  // then the last vector may be a part
                const unsigned over = unsigned(begin) % LANES;
                if (step == 1 && inside && begin >= 0 && begin <= size - LANES && (!FLAT || over == 0 || begin - i64(over) <= size - 2 * LANES)) {
                    const auto v = shifted<T, LANES>(p + (begin - i64(by.at)), over);
                    #pragma unroll
                    for (int k = 0; k < LANES; k++) found.at[k] = F(element(v, k));
                    return found;
                }
            }
            #pragma unroll
            for (int k = 0; k < LANES; k++) {
                const i64 e = by.place(k, size);
                found.at[k] = inside && e >= 0 && e < size ? F(p[(e - i64(by.at)) * step]) : fill;
            }
            return found;
        }
    }
    const bool here = begin >= 0 && begin < size;
    if (here) p += (begin - i64(by.at)) * stride_along(layout, K, INDEX);
    return tap_of<F, LANES, SPLAT, K>(layout, p, inside && here, fill, more...);
}
// What a thread's LANES neighbours read of a line along a row: the elements FIRST to LAST from the place TIMES * at on, each once. NEAR: they
// lie one behind another, in whole aligned vectors; then `at` is a multiple of LANES. SURE: all of them are there, or (1) those of the
// neighbours' own steps. Pointers stand at `origin`.
template <i64 TIMES, int FIRST, int LAST, bool NEAR, int SURE> struct Span {
    i64 at, size, stride, origin;
};
template <i64 TIMES, int FIRST, int LAST, bool NEAR, int SURE, typename Index>
__device__ inline Span<TIMES, FIRST, LAST, NEAR, SURE> span_at(Index at, i64 size, i64 stride, i64 origin = 0) {
    return {i64(at), size, stride, origin};
}
template <typename F, int FIRST, int COUNT> struct Spanned {
    F at[COUNT];
    __device__ F operator[](int e) const { return at[e - FIRST]; }
};
// The least power of two from n on: elements of a vector's part that begins or ends where it does.
template <int N> constexpr int PART_OF = 2 * PART_OF<(N + 1) / 2>;
template <> constexpr int PART_OF<1> = 1;
template <typename... S> constexpr bool SPANS = false;
template <i64 TIMES, int FIRST, int LAST, bool NEAR, int SURE> constexpr bool SPANS<Span<TIMES, FIRST, LAST, NEAR, SURE>> = true;
template <typename One, typename Two, typename... S> constexpr bool SPANS<One, Two, S...> = SPANS<Two, S...>;

// MANY vectors of EACH elements of a span, from E on; of the first and the last no more than the part that is asked for.
template <int E, int MANY, int EACH, int LANES, int FIRST, int LAST, int SURE, i64 TIMES, bool NEAR, typename F, typename T>
__device__ inline void read_span(Spanned<F, FIRST, LAST - FIRST + 1>& found, const T* p, bool inside, F fill, const Span<TIMES, FIRST, LAST, NEAR, SURE>& by) {
    if constexpr (MANY > 1) {  // by halves, which go no deeper than compilers do
        read_span<E, MANY / 2, EACH, LANES>(found, p, inside, fill, by);
        read_span<E + MANY / 2 * EACH, MANY - MANY / 2, EACH, LANES>(found, p, inside, fill, by);
    } else {
        constexpr int BEHIND = FIRST > E ? FIRST - E : 0, ASKED = (LAST - E < EACH ? LAST - E + 1 : EACH) - BEHIND;
        constexpr int PART = PART_OF<(BEHIND > 0 ? EACH - BEHIND : ASKED)>, FROM = BEHIND > 0 ? E + EACH - PART : E;
        constexpr bool THERE = SURE > 1 || (SURE == 1 && E >= 0 && E < TIMES * LANES);
        const bool here = inside && (THERE || u64(TIMES * by.at + E) < u64(by.size));
        Vector<T, PART> v;  // of what stands outside: were it not set, the compiler would take the vector before for it, and wait for that
        #pragma unroll
        for (int k = 0; k < PART; k++) v.at[k] = T(fill);
        if (here) v = *reinterpret_cast<const Vector<T, PART>*>(p + FROM * by.stride);
        #pragma unroll
        for (int k = 0; k < PART; k++) {
            if (FROM + k >= FIRST && FROM + k <= LAST) found.at[FROM + k - FIRST] = sizeof(T) == sizeof(F) || here ? F(element(v, k)) : fill;
        }
    }
}
// Elements of a vector that LANES neighbours read, in steps of TIMES, up to 16 bytes: as many as these steps take, or a half of them, and so
// on.
template <int LANES, i64 TIMES, typename T> constexpr int EACH_OF = LANES == 1 ? 1 : LANES * (TIMES & -TIMES) * sizeof(T) < 16 ? LANES * (TIMES & -TIMES) : 16 / sizeof(T);

template <typename F, int LANES, u64 SPLAT, int K, typename Layout, typename T, i64 TIMES, int FIRST, int LAST, bool NEAR, int SURE>
__device__ inline auto tap_of(const Layout& layout, const T* p, bool inside, F fill, Span<TIMES, FIRST, LAST, NEAR, SURE> by) {
    constexpr int EACH = NEAR ? EACH_OF<LANES, TIMES, T> : 1, LOW = FIRST - (FIRST % EACH + EACH) % EACH;  // where the first one begins
    Spanned<F, FIRST, LAST - FIRST + 1> found;
    read_span<LOW, (LAST - LOW) / EACH + 1, EACH, LANES>(found, p + (TIMES * by.at - by.origin) * by.stride, inside, fill, by);
    return found;
}
// Whether all lines of operand K lie in whole aligned vectors of those, wherever they begin along dims with such strides: alike for all threads.
template <int LANES, i64 TIMES, int K, int RANK, int N, typename Index, typename T, typename... I>
__device__ inline bool is_aligned(const Layout<RANK, N, Index>& layout, const T* p, I... strides) {
    constexpr int EACH = EACH_OF<LANES, TIMES, T>;
    bool whole = EACH == 1 || (u64(p) % (EACH * sizeof(T)) == 0 && ((u64(strides) % EACH == 0) && ...));
    #pragma unroll
    for (int d = 0; d < RANK; d++) whole = whole && layout.stride[K][d] % EACH == 0;
    return whole;
}
// The k-th element of LANES that a thread takes where lines do not lie so, of which the i-th would take those of a vector: those of a block go
// side by side. Whether it is there; a row's last vector may be a part.
template <int LANES, int ROWS, int RANK, int N, typename Index>
__device__ inline bool locate_one(const Layout<RANK, N, Index>& layout, Index i, int k, Index (&at)[N], int along) {
    const Index first = i / 128 * 128, many = layout.n - first < 128 ? layout.n - first : 128, e = Index(k) * many + i % 128;
    layout.template locate<ROWS, (ROWS > 1), LANES>(first + e / LANES, at);
    #pragma unroll
    for (int o = 0; o < N; o++) at[o] += e % LANES * layout.step(o);
    return LANES == 1 || at[along] < layout.size[RANK - 1];
}
// A vector, at once or in pairs, as it is aligned.
template <int LANES, typename T> __device__ inline void store_pairs(T* p, const Vector<T, LANES>& v) {
    if (LANES == 1 || u64(p) % sizeof v == 0) return store(p, v);
    const int first = u64(p) % (2 * sizeof(T)) != 0;
    #pragma unroll
    for (int k = 0; k < LANES; k++) {
        if constexpr (LANES > 2) {
            if (k % 2 == first && k + 1 < LANES) store(p + k, Vector<T, 2>{{v.at[k], v.at[k + 1 < LANES ? k + 1 : k]}});
            if (k == 0 || k == LANES - 1) {
                if (first) p[k] = v.at[k];
            }
        } else {
            p[k] = v.at[k];
        }
    }
}
// As many of a vector's elements as there are, `step` apart.
template <int LANES, typename T, typename Index> __device__ inline void store_some(T* p, const Vector<T, LANES>& v, Index count, Index step) {
    if constexpr (LANES == 1) {
        store_pairs(p, v);
    } else {
        if (step == 1 && count >= LANES) return store_pairs(p, v);
        #pragma unroll
        for (int k = 0; k < LANES; k++) {
            if (k < count) p[k * step] = v.at[k];
        }
    }
}

// A window's element, which is read where all of its places lie inside, or SOME do; other shifts come behind windows.
template <typename F, int LANES, u64 SPLAT, int K, bool SOME, typename Layout, typename T, typename... S>
__device__ inline auto window_of(const Layout& layout, const T* p, i64 away, bool inside, F fill, S... more) {
    if constexpr (SOME || SPANS<S...>) {
        return tap_of<F, LANES, SPLAT, K>(layout, p + away, inside, fill, more...);
    } else {
        Lanes<F, LANES> found;
        #pragma unroll
        for (int k = 0; k < LANES; k++) found.at[k] = fill;
        return inside ? tap_of<F, LANES, SPLAT, K>(layout, p + away, true, fill, more...) : found;
    }
}
template <typename F, int LANES, u64 SPLAT, int K, bool SOME, typename Layout, typename T, i64 TIMES, i64 BY, i64 OVER, bool WITHIN, typename... S>
__device__ inline auto window_of(const Layout& layout, const T* p, i64 away, bool inside, F fill, Window<TIMES, BY, OVER, WITHIN, SOME> by, S... more) {
    const i64 place = by.place();
    const bool here = by.inside(place);
    return window_of<F, LANES, SPLAT, K, SOME>(layout, p, away + ((SOME && !here ? 0 : place) - by.origin) * by.stride, inside && here, fill, more...);
}
template <typename F, int LANES, u64 SPLAT, int K, typename Layout, typename T, i64 TIMES, i64 BY, i64 OVER, bool WITHIN, bool SOME, typename... S>
__device__ inline auto tap_of(const Layout& layout, const T* p, bool inside, F fill, Window<TIMES, BY, OVER, WITHIN, SOME> by, S... more) {
    return window_of<F, LANES, SPLAT, K, SOME>(layout, p, 0, inside, fill, by, more...);
}
template <typename F, int LANES, u64 SPLAT, int K, typename Layout, typename T, typename... S>
__device__ inline auto tap(const Layout& layout, const T* p, F fill, S... shifts) {
    return tap_of<F, LANES, SPLAT, K>(layout, p, true, fill, shifts...);
}
