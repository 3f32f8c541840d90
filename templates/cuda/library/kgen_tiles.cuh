// Maps that read operands whose neighbours are no neighbours in the result (a transposition, channels as pixels): a block takes a tile of the
// result, and those operands' parts of it go through shared memory, read in the order in which they lie, and again in the result's.
#pragma once
#include "kgen_maps.cuh"

[[maybe_unused]] constexpr int TILE = 8192;  // bytes of a tile, of the widest operand

// As `Layout`, of n tiles. They extend along the last three dims: the last is the one along which the result's neighbours lie, the one
// before it that of the turned operands'.
template <int RANK, int K, typename Index> struct Tiles {
    Index n, size[RANK], stride[K][RANK], many[3];  // `many` tiles lie along the last three
    unsigned extent[3], inverse[2];  // and of the last two 2^31 by the extent, rounded up
    unsigned each, shift, mask;  // of a vector across the rows of shared memory: 2^shift, `each`, lie in one column; what rows are turned by
};

// The i-th tile, whose vectors have VEC elements. TURNED has a bit for each operand that goes through shared memory, there in rows along the
// last dim but one (GATHERS: each vector of the result is gathered out of several), or along the last.
template <u64 TURNED, bool GATHERS, int VEC, int RANK, int K, typename Index> struct Tile {
    const Tiles<RANK, K, Index>& tiles;
    Index origin[K];
    unsigned left[3];

    __device__ Tile(const Tiles<RANK, K, Index>& tiles, Index i) : tiles(tiles) {
        #pragma unroll
        for (int k = 0; k < K; k++) origin[k] = 0;
        #pragma unroll
        for (int d = RANK - 1; d >= 0; d--) {
            const int t = d - (RANK - 3);
            const Index own = t < 0 ? tiles.size[d] : tiles.many[t < 0 ? 0 : t], outer = d > 0 ? over(i, own) : 0;
            const Index first = (i - outer * own) * (t < 0 ? 1 : tiles.extent[t < 0 ? 0 : t]);
            if (t >= 0) left[t < 0 ? 0 : t] = tiles.size[d] - first < tiles.extent[t < 0 ? 0 : t] ? unsigned(tiles.size[d] - first) : tiles.extent[t < 0 ? 0 : t];
            #pragma unroll
            for (int k = 0; k < K; k++) origin[k] += first * tiles.stride[k][d];
            i = outer;
        }
    }
    __device__ unsigned count() const { return tiles.extent[0] * tiles.extent[1] * tiles.extent[2]; }

    // Where in the tile its element e lies, as the result's elements follow one another, or as the turned operands' do.
    struct Spot { unsigned at[3]; };
    template <bool RESULT> __device__ Spot spot(unsigned e) const {
        constexpr int FIRST = RESULT ? 2 : 1, THEN = 3 - FIRST;
        const unsigned row = unsigned(u64(e) * tiles.inverse[FIRST - 1] >> 31), outer = unsigned(u64(row) * tiles.inverse[THEN - 1] >> 31);
        Spot s;
        s.at[FIRST] = e - row * tiles.extent[FIRST], s.at[THEN] = row - outer * tiles.extent[THEN], s.at[0] = outer;
        return s;
    }
    __device__ bool has(Spot s) const { return s.at[0] < left[0] && s.at[1] < left[1] && s.at[2] < left[2]; }
    __device__ bool has(unsigned e) const { return has(spot<true>(e)); }
    __device__ Index offset(int k, Spot s) const {
        const Index (&by)[RANK] = tiles.stride[k];
        return origin[k] + s.at[0] * by[RANK - 3] + s.at[1] * by[RANK - 2] + s.at[2] * by[RANK - 1];
    }
    // In shared memory: rows of vectors, which are turned, so that those one below the other lie in different banks.
    __device__ unsigned width() const { return tiles.extent[GATHERS ? 1 : 2]; }
    __device__ unsigned place(Spot s) const {
        const unsigned row = s.at[0] * tiles.extent[GATHERS ? 2 : 1] + s.at[GATHERS ? 2 : 1], column = s.at[GATHERS ? 1 : 2];
        return row * width() + (column ^ (row / VEC & tiles.mask) * VEC);
    }
    // From the first element of a vector across rows to its k-th.
    __device__ unsigned across(int k) const { return (k & (tiles.each - 1)) * width() + (k >> tiles.shift); }

    // What a map asks of its layout.
    __device__ void locate(Index e, Index (&at)[K]) const {
        const Spot s = spot<true>(unsigned(e));
        #pragma unroll
        for (int k = 0; k < K; k++) at[k] = TURNED >> k & 1 ? Index(place(s)) : offset(k, s);
    }
    __device__ Index step(int k) const { return tiles.stride[k][RANK - 1]; }
    __device__ Index below(int, int) const { return 0; }

    // Brings operand k into shared memory; four vectors a thread are on their way at once.
    template <typename T> __device__ void fetch(int k, const T* from, T* to) const {
        constexpr int ONCE = 4;
        constexpr unsigned NOWHERE = ~0u;
        #pragma unroll 1
        for (unsigned first = threadIdx.x * VEC; first < count(); first += ONCE * 128 * VEC) {
            Vector<T, VEC> v[ONCE];
            unsigned there[ONCE];
            #pragma unroll
            for (int n = 0; n < ONCE; n++) {
                const unsigned e = first + n * 128 * VEC;
                const Spot s = spot<false>(e);
                there[n] = e < count() && has(s) ? place(s) : NOWHERE;
                if (there[n] != NOWHERE) v[n] = *reinterpret_cast<const Vector<T, VEC>*>(from + offset(k, s));
            }
            #pragma unroll
            for (int n = 0; n < ONCE; n++) {
                if (there[n] != NOWHERE) put(to + there[n], v[n]);
            }
        }
    }
    template <typename T> __device__ void put(T* p, const Vector<T, VEC>& v) const {
        if constexpr (GATHERS) {
            *reinterpret_cast<Vector<T, VEC>*>(p) = v;
        } else {
            #pragma unroll
            for (int k = 0; k < VEC; k++) p[across(k)] = v.at[k];
        }
    }
};

// A vector of operand K: out of shared memory, or as it lies; one value for all where that stands still.
template <int LANES, u64 SPLAT, int K, u64 TURNED, bool GATHERS, int VEC, int RANK, int N, typename Index, typename T>
__device__ inline Vector<T, LANES> load(const Tile<TURNED, GATHERS, VEC, RANK, N, Index>& tile, const T* p) {
    constexpr bool IS_TURNED = TURNED >> K & 1;
    Vector<T, LANES> v;
    if constexpr (IS_TURNED && GATHERS) {
        #pragma unroll
        for (int k = 0; k < LANES; k++) v.at[k] = p[tile.across(k)];
    } else if (IS_TURNED || tile.step(K) != 0) {
        v = *reinterpret_cast<const Vector<T, LANES>*>(p);
    } else {
        #pragma unroll
        for (int k = 0; k < LANES; k++) v.at[k] = *p;
    }
    return v;
}

#ifndef __CUDACC_RTC__
// The host's part: choose the tiles, as kgen's runtime does (`plan` in kgen/runtime/tiles.py), and launch the kernel for them.
namespace {
namespace host {

constexpr i64 RUN = 128;  // bytes of the widest operand's neighbours that a tile has (half as many of bytes), if there are so many

// The tiles of merged dims, of which the last is the one along which the result's neighbours lie; TURNED has a bit for each operand that lies
// otherwise. Those are not `there` where its neighbours lie along no one dim, or indices take more than 32 bits.
template <int K> struct TilePlan : Dims<K> {
    bool there = false, gathers = true;
    int vec = 1;
    i64 extent[3] = {1, 1, 1}, many[3] = {1, 1, 1}, each = 1, mask = 0, tiles = 1;

    TilePlan(const Dims<K>& dims, const Operand (&operands)[K], u64 turned) : Dims<K>(dims) {
        const int last = this->rank - 1;
        int first = 0, other = 0, widest = 1;
        while (!(turned >> first & 1)) first++;
        while (other < last && this->stride[first][other] != 1) other++;
        i64 end = this->count;
        there = other < last && this->stride[K - 1][last] == 1;
        for (int k = 0; k < K; k++) {
            if (turned >> k & 1) there = there && this->stride[k][other] == 1 && this->stride[k][last] > 1;
            if (this->last(k) > end) end = this->last(k);
            if (operands[k].bytes > widest) widest = operands[k].bytes;
        }
        there = there && end <= UINT_MAX - TILE;
        if (!there) return;
        const i64 room = TILE / widest, run = RUN / (widest > 2 ? widest : 2);
        for (vec = 16 / widest; vec > 1 && !fits(operands, turned, last, other); ) vec /= 2;
        gathers = this->size[other] % vec == 0;
        extent[1] = shared(this->size[other], room / (this->size[last] < run ? this->size[last] : run), run);
        extent[2] = shared(this->size[last], room / extent[1], run);
        const i64 left = room / (extent[1] * extent[2]);
        int third = -1;
        for (int d = 0; d < last; d++) {
            if (d == other) continue;
            const bool short_one = this->size[d] < left, short_third = third < 0 || this->size[third] < left;
            if (third < 0 || (short_one == short_third ? this->stride[first][d] < this->stride[first][third] : short_third)) third = d;
        }
        if (third >= 0) extent[0] = this->size[third] < left ? this->size[third] : left;
        if (third >= 0) to_end(third);
        to_end(other - (third >= 0 && third < other));
        to_end(third >= 0 ? last - 2 : last - 1);
        const i64 chunks = extent[gathers ? 1 : 2] / vec, rows = extent[gathers ? 2 : 1], apart = RUN / (vec * widest);
        each = (rows & -rows) < vec ? rows & -rows : vec;
        mask = (apart < (chunks & -chunks) ? apart : chunks & -chunks) - 1;
        for (int d = 0; d < this->rank; d++) {
            const int t = d - (this->rank - 3);
            if (t >= 0) many[t] = (this->size[d] - 1) / extent[t] + 1;
            tiles *= t >= 0 ? many[t] : this->size[d];
        }
        there = tiles <= INT_MAX;
    }
    void to_end(int d) {
        for (; d < this->rank - 1; d++) this->exchange(d, d + 1);
    }
    // So many of a dim as make equal tiles of up to `most`, in whole runs where it has several.
    static i64 shared(i64 size, i64 most, i64 run) {
        if (size <= most) return size;
        const i64 count = (size - 1) / (most - most % run) + 1;
        return (((size - 1) / count + 1) - 1) / run * run + run;
    }
    // Whether all that moves does so in aligned vectors, those of one side along one dim.
    bool fits(const Operand (&operands)[K], u64 turned, int last, int other) const {
        if (this->size[last] % vec != 0 && this->size[other] % vec != 0) return false;
        for (int k = 0; k < K; k++) {
            const bool is_turned = turned >> k & 1;
            if ((is_turned || this->stride[k][last] != 0) && uintptr_t(operands[k].pointer) % u64(vec * operands[k].bytes) != 0) return false;
            if (!runs(this->stride[k], is_turned ? other : last, is_turned ? last : other)) return false;
        }
        return true;
    }
    // Whether a vector along a dim (and, where that has fewer elements, along another one behind it) is neighbours, or one value.
    bool runs(const i64* by, int first, int then) const {
        const i64 along = this->size[first];
        const bool beyond = along % vec != 0;
        if (beyond && (vec % along != 0 || this->size[then] % (vec / along) != 0)) return false;
        if (by[first] == 0) return !beyond || by[then] == 0;
        if (by[first] != 1 || (beyond && by[then] != along)) return false;
        for (int d = 0; d < this->rank; d++) {
            if (d != first && !(beyond && d == then) && by[d] % vec != 0) return false;
        }
        return true;
    }
};

template <int RANK_, int VEC_, bool GATHERS_> struct TileVariant {
    static constexpr int RANK = RANK_, VEC = VEC_;
    static constexpr bool GATHERS = GATHERS_;
};

template <int RANK, int K, typename... P, typename... A>
cudaError_t launch(void (*kernel)(Tiles<RANK, K, unsigned>, P...), const TilePlan<K>& plan, cudaStream_t stream, A... arguments) {
    Tiles<RANK, K, unsigned> tiles;
    tiles.n = unsigned(plan.tiles);
    plan.put(tiles.size, tiles.stride);
    for (int t = 0; t < 3; t++) tiles.many[t] = unsigned(plan.many[t]), tiles.extent[t] = unsigned(plan.extent[t]);
    for (int t = 0; t < 2; t++) tiles.inverse[t] = unsigned(((i64(1) << 31) - 1) / plan.extent[t + 1] + 1);
    tiles.each = unsigned(plan.each), tiles.mask = unsigned(plan.mask);
    for (tiles.shift = 0; 1u << tiles.shift < tiles.each; ) tiles.shift++;
    return start(kernel, tiles, plan.tiles, 128, 1, 0, false, stream, arguments...);
}

// Kernels for vectors of up to VEC elements.
template <int VEC, int K, typename Tiled, typename... A>
cudaError_t run_tiles(const TilePlan<K>& plan, Tiled tiled, cudaStream_t stream, A... arguments) {
    if constexpr (VEC > 1) {
        if (plan.vec < VEC) return run_tiles<VEC / 2>(plan, tiled, stream, arguments...);
        if (!plan.gathers) return launch(tiled(TileVariant<8, VEC, false>()), plan, stream, arguments...);
    }
    return launch(tiled(TileVariant<8, VEC, true>()), plan, stream, arguments...);
}

// As `run_map`, where operands TURNED may lie otherwise than the result, in which a vector of the widest operand has WHOLE elements: then
// `tiled(variant)` gives the kernel.
template <int VEC, int MOST, u64 SPLAT, u64 HELD, u64 TURNED, int WHOLE, u64 OTHERWISE = 0, int EACH = 1, int K, typename Kernel, typename Tiled, typename... A>
cudaError_t run_turned(int rank, const i64* size, const Operand (&operands)[K], cudaStream_t stream, Kernel kernel, Tiled tiled, A... arguments) {
    if (rank >= 0 && rank <= 64) {
        const Plan<K> plan(rank, size, operands, HELD);
        if (plan.count > 0 && plan.vec == 1 && plan.rank <= 8) {
            const TilePlan<K> tiles(plan, operands, TURNED);
            if (tiles.there) return run_tiles<WHOLE>(tiles, tiled, stream, arguments...);
        }
    }
    return run_map<VEC, MOST, SPLAT, HELD, OTHERWISE, EACH>(rank, size, operands, stream, kernel, arguments...);
}

}  // namespace host
}  // namespace
#endif
