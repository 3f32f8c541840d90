// Maps: kernels that compute each element by itself, and what launches them.
#pragma once
#include "kgen_host.cuh"

[[maybe_unused]] constexpr int SPLATS = 63;  // operands that a SPLAT may have

// LANES neighbours of operand K from p on, or one for all of them: as its bit of SPLAT says, or where that is GIVEN its step.
template <int LANES, u64 SPLAT, int K, typename Layout, typename T>
__device__ inline Vector<T, LANES> load(const Layout& layout, const T* p) {
    constexpr bool STILL = K < SPLATS && SPLAT >> K % 64 & 1;  // or may stand still, where it is GIVEN
    if constexpr (STILL) {
        if (SPLAT != GIVEN || layout.step(K) == 0) {
            Vector<T, LANES> v;
            #pragma unroll
            for (int k = 0; k < LANES; k++) v.at[k] = *p;
            return v;
        }
    }
    return *reinterpret_cast<const Vector<T, LANES>*>(p);
}
// The same of ROWS places, `by` elements apart.
template <typename V, int ROWS> struct Several {
    V row[ROWS];
    __device__ const V& operator[](int r) const { return row[r]; }
};
template <int ROWS, typename Make> __device__ inline auto several(Make make) {
    Several<decltype(make(0)), ROWS> v;
    #pragma unroll
    for (int r = 0; r < ROWS; r++) v.row[r] = make(r);
    return v;
}
template <int LANES, u64 SPLAT, int K, int ROWS, typename Layout, typename T, typename Index>
__device__ inline auto load_rows(const Layout& layout, const T* p, Index by) {
    return several<ROWS>([&](int r) { return load<LANES, SPLAT, K>(layout, p + r * i64(by)); });
}
// The same of rows one below the other from the `first` on, of which the last may not be there.
template <int LANES, u64 SPLAT, int K, int ROWS, typename Layout, typename T, typename Index>
__device__ inline auto load_rows(const Layout& layout, const T* p, Index by, Index first) {
    return several<ROWS>([&](int r) { return load<LANES, SPLAT, K>(layout, p + (layout.template has<ROWS>(first, r) ? r : 0) * by); });
}
// The position k places behind that of a vector's first element; these are multiples of LANES, and the compiler knows the last bits.
template <int LANES, u64 SPLAT, int K, typename Layout, typename Index> __device__ inline i64 counted(const Layout& layout, Index first, int k) {
    constexpr bool STILL = K < SPLATS && SPLAT >> K % 64 & 1;
    if (LANES == 1 || (STILL && (SPLAT != GIVEN || layout.step(K) == 0))) return i64(first);
    return i64(first / LANES * LANES | Index(k));
}
template <int LANES, typename T> __device__ inline void store(T* p, const Vector<T, LANES>& v) {
    *reinterpret_cast<Vector<T, LANES>*>(p) = v;
}

// i / n, by a shift where n is a power of two: all threads go one way.
template <typename Index> __device__ inline Index over(Index i, Index n) {
    return (n & (n - 1)) == 0 ? i >> __popcll(n - 1) : i / n;
}
// The dims of K operands, merged, outermost first.
template <int RANK, int K, typename Index> struct Layout {
    Index n, size[RANK], stride[K][RANK];

    // Where element i lies in each operand, in the first of PIECES equal ones of each row, or of so many rows one below the other, of which
    // the last may not be there; or the i-th vector of EACH neighbours, of which a row's last may be a part.
    template <int PIECES = 1, bool ROWS = false, int EACH = 1> __device__ void locate(Index i, Index (&at)[K]) const {
        constexpr int SHARED = ROWS ? RANK - 2 : RANK - 1;
        #pragma unroll
        for (int k = 0; k < K; k++) at[k] = 0;
        #pragma unroll
        for (int d = RANK - 1; d >= 0; d--) {
            const int pieces = ROWS || d < SHARED ? 1 : PIECES, each = d == RANK - 1 ? EACH : ROWS && d == SHARED ? PIECES : 1;
            const Index own = each == 1 ? size[d] / pieces : (size[d] - 1) / each + 1, outer = d > 0 ? over(i, own) : 0, inner = i - outer * own;
            #pragma unroll
            for (int k = 0; k < K; k++) at[k] += inner * stride[k][d] * each;
            i = outer;
        }
    }
    __device__ Index step(int k) const { return stride[k][RANK - 1]; }
    // From one row to the next, where `size` counts each `rows` of them as one.
    __device__ Index below(int k, int rows) const { return RANK > 1 ? stride[k][RANK > 1 ? RANK - 2 : 0] / rows : 0; }
    // From one piece of a row to the next, and to the row below.
    __device__ Index beyond(int k, int pieces) const { return size[RANK - 1] / pieces * step(k); }
    // Whether there is an r-th of ROWS rows one below the other, the first of which is there.
    template <int ROWS> __device__ bool has(Index first, int r) const { return ROWS == 1 || r == 0 || first + r < size[RANK > 1 ? RANK - 2 : 0]; }
    __device__ Index under(int k, int) const { return RANK > 1 ? stride[k][RANK > 1 ? RANK - 2 : 0] : 0; }
};

// SPLAT has this bit where vectors are neighbours in memory, whatever rows they lie in; then also whether these have fewer elements than a
// vector (1), many vectors (2), some (0), or that is TOLD at the launch, with how far it is between elements of an operand (else 0 or 1).
constexpr u64 FLAT = u64(1) << 63, TOLD = FLAT | u64(3) << 61;
template <u64 SPLAT> constexpr bool is_flat = SPLAT != GIVEN && (SPLAT & FLAT) != 0;
template <u64 SPLAT> constexpr int rows_are = SPLAT >> 61 & 3;

// A vector's place in memory where rows are no whole vectors: all operands but OTHERWISE lie as the i-th elements do, which a vector of them
// are; those, which have fewer dims, or are indices, are read element by element, and of SINGLE, which have none, the one.
template <u64 OTHERWISE, u64 SINGLE, int RANK, int K, typename Index> struct Straddling {
    const Layout<RANK, K, Index>& layout;
    Index first[RANK];  // where the vector begins, along each dim

    __device__ Straddling(const Layout<RANK, K, Index>& layout, Index i) : layout(layout) {
        #pragma unroll
        for (int d = RANK - 1; d >= 0; d--) {
            const Index outer = d > 0 ? i / layout.size[d] : 0;  // no branch, behind which loads would wait
            first[d] = i - outer * layout.size[d];
            i = outer;
        }
    }
    __device__ void locate(Index i, Index (&at)[K]) const {
        #pragma unroll
        for (int k = 0; k < K; k++) {
            at[k] = i;
            if (!(OTHERWISE >> k & 1)) continue;
            at[k] = 0;
            #pragma unroll
            for (int d = 0; d < RANK; d++) at[k] += SINGLE >> k & 1 ? 0 : first[d] * layout.stride[k][d];
        }
    }
    __device__ Index step(int k) const { return layout.step(k); }
    __device__ Index below(int, int) const { return 0; }
    // How far it is from an element of operand k to the next one, at some place along each dim.
    __device__ Index next(int k, Index (&at)[RANK]) const {
        Index by = 0;
        #pragma unroll
        for (int d = RANK - 1; d >= 0; d--) {
            by += layout.stride[k][d];
            if (++at[d] < layout.size[d]) break;
            by -= layout.size[d] * layout.stride[k][d];
            at[d] = 0;
        }
        return by;
    }
    // How many elements of a vector's first row there are from it on.
    __device__ Index left() const { return layout.size[RANK - 1] - first[RANK - 1]; }
    // How much further than a step it is from a row's last element of operand k to the next row's first.
    __device__ int beyond(int k) const {
        Index at[RANK];
        #pragma unroll
        for (int d = 0; d < RANK; d++) at[d] = first[d];
        at[RANK - 1] = layout.size[RANK - 1] - 1;
        return int(next(k, at) - step(k));
    }
    // How far it is from the first of LANES neighbours of operand k to each.
    template <u64 SPLAT, int LANES> __device__ void steps(int k, int (&to)[LANES]) const {
        constexpr bool KNOWN = SPLAT != TOLD;
        if (KNOWN ? rows_are<SPLAT> != 1 : layout.size[RANK - 1] >= LANES) {  // they lie in two rows at most
            const int further = beyond(k);
            #pragma unroll
            for (int e = 0; e < LANES; e++) to[e] = e * int(step(k)) + (Index(e) < left() ? 0 : further);
        } else {
            Index at[RANK];
            #pragma unroll
            for (int d = 0; d < RANK; d++) at[d] = first[d];
            to[0] = 0;
            #pragma unroll
            for (int e = 1; e < LANES; e++) to[e] = to[e - 1] + int(next(k, at));
        }
    }
};
template <int LANES, u64 SPLAT, int O, u64 OTHERWISE, u64 SINGLE, int RANK, int K, typename Index, typename T>
__device__ inline Vector<T, LANES> load(const Straddling<OTHERWISE, SINGLE, RANK, K, Index>& layout, const T* p) {
    constexpr bool WHOLE = !(OTHERWISE >> O & 1), ONE = SINGLE >> O & 1, STILL = SPLAT != TOLD && SPLAT >> O & 1;
    Vector<T, LANES> v;
    const Index left = layout.left();
    if constexpr (WHOLE) {
        v = *reinterpret_cast<const Vector<T, LANES>*>(p);
    } else if constexpr (ONE || (STILL && rows_are<SPLAT> != 1)) {
        const T own = *p, next = ONE ? own : p[layout.beyond(O)];  // the next row's; behind the last row that of the first
        #pragma unroll
        for (int k = 0; k < LANES; k++) v.at[k] = ONE || Index(k) < left ? own : next;
    } else if (SPLAT != TOLD && rows_are<SPLAT> == 2 && left >= LANES) {  // as most
        #pragma unroll
        for (int k = 0; k < LANES; k++) v.at[k] = p[k];
    } else if constexpr (SPLAT != TOLD && rows_are<SPLAT> != 1 && LANES > 4) {  // of few, places are quicker than pointers
        const T* next = p + layout.beyond(O);
        #pragma unroll
        for (int k = 0; k < LANES; k++) v.at[k] = (Index(k) < left ? p : next)[k];
    } else {
        int to[LANES];
        layout.template steps<SPLAT>(O, to);
        #pragma unroll
        for (int k = 0; k < LANES; k++) v.at[k] = p[to[k]];
    }
    return v;
}
template <int LANES, u64 SPLAT, int O, u64 OTHERWISE, u64 SINGLE, int RANK, int K, typename Index>
__device__ inline i64 counted(const Straddling<OTHERWISE, SINGLE, RANK, K, Index>& layout, Index first, int k) {
    int to[LANES];
    layout.template steps<SPLAT>(O, to);
    return i64(first) + to[k];
}
// How a kernel's vector lies: as its layout says, or FLAT.
template <u64 SPLAT, u64 OTHERWISE, u64 SINGLE, int RANK, int K, typename Index>
__device__ inline decltype(auto) lying(const Layout<RANK, K, Index>& layout, Index i) {
    if constexpr (is_flat<SPLAT>) return Straddling<OTHERWISE, SINGLE, RANK, K, Index>(layout, i);
    else return (layout);
}

#ifndef __CUDACC_RTC__
// The host's part: choose the variant, as kgen's runtime does (`plan` in kgen/runtime/maps.py), and launch it.
namespace {
namespace host {

// Neighbours that a thread takes where windows along a row share what they read, by the bytes of the widest operand's elements.
[[maybe_unused]] constexpr int window_lanes(int widest) { return widest > 4 ? 16 / widest : 4; }
// Rows of which a thread takes its columns, in vectors of so many elements, where it reads parameters of these.
constexpr int map_rows(int vec) { return vec == 8 ? 8 : 4; }

// For `held`: a thread may take vectors of so many pieces of a row, or of so many rows whatever stands still there; of these an operand
// may be the index.
[[maybe_unused]] constexpr u64 pieces(int many) { return ~u64(many); }
[[maybe_unused]] constexpr u64 rows_below(int many, int index = -1) { return ~u64(many + 16 + 32 * (index + 1)); }
// Of windows: a thread may take so many rows, any of them, or rows one below the other, of which operand `row` is the index; and neighbours
// in a row (`window_lanes`), of which operand `along` is the index.
[[maybe_unused]] constexpr u64 windows(int many, int row = -1, int along = -1) { return ~u64(4096 * (along + 2) + many + 32 * (row + 1)); }
constexpr bool are_windows(u64 held) { return ~held / 4096 - 1 < 66; }
constexpr int windows_of(u64 held) { return are_windows(held) ? int(~held % 16) : 0; }
constexpr int along_of(u64 held) { return are_windows(held) ? int(~held / 4096) - 2 : -1; }
constexpr int pieces_of(u64 held) { return ~held < 32 * 65 ? int(~held % 16) : 0; }
constexpr bool are_below(u64 held) { return ~held / 16 % 2 == 1; }
constexpr int index_of(u64 held) { return ~held < 67 * 4096 ? int(~held % 4096 / 32) - 1 : -1; }

// No bytes: an index, which has no memory.
struct Operand { const void* pointer; const i64* stride; int bytes; bool written = false; };

// All elements of K operands (the last is written) in one order, and how they are walked. Rank at most 64.
template <int K> struct Plan : Dims<K> {
    int vec = 1, most = 1, rows = 1, lanes = 1;
    bool wide = false, pieces = false, under = false;
    u64 splat = 0;

    // In vectors of up to 16 bytes of the widest operand that moves along the innermost dim; of `map_rows` a thread, where those of `held`
    // stand still from row to row, or of pieces of a row; `single`: no vectors, and of windows several rows.
    Plan(int dims, const i64* sizes, const Operand (&operands)[K], u64 held, bool single = false) {
        this->merge(dims, sizes, K - 1, 1, [&](int k) { return operands[k].stride; });
        int widest = 1, every = 1;
        for (int k = 0; k < K; k++) {
            if (step(k) != 0) widest = operands[k].bytes > widest ? operands[k].bytes : widest;
            else if (operands[k].written || k >= SPLATS) widest = 16;  // one by one
            else splat |= u64(1) << k;
        }
        most = vec = single ? 1 : 16 / widest;
        while (vec > 1 && !fits(operands)) vec /= 2;
        if (vec == 1) splat = 0;
        const bool known = index_of(held) < 0 || (this->rank > 1 && this->stride[index_of(held)][this->rank - 2] == 1);
        int windows = windows_of(held) > 1 && known && this->count >= 1 << 20 ? windows_of(held) : 1;
        under = windows > 1 && index_of(held) >= 0;
        if (windows > 1 && !under && !rows_last(operands, windows)) {  // then of half as many, or of one
            windows /= 2;
            if (windows > 1 && !rows_last(operands, windows)) windows = 1;
        }
        wide = this->count > UINT_MAX - 128 * vec;
        bool several = held != 0 && this->rank == 2 && 1 < vec && vec == most && this->size[0] % map_rows(vec) == 0 && this->count >= 1 << 20;
        for (int k = 0; k < K; k++) {
            wide = wide || this->last(k) > UINT_MAX;
            several = several && (k >= 64 || !(held >> k & 1) || this->stride[k][0] == 0);
        }
        const int many = pieces_of(held);
        const bool below = many > 0 && are_below(held);
        const i64 shared = below ? (this->rank > 1 ? this->size[this->rank - 2] : 1) : this->size[this->rank - 1];
        pieces = many > 1 && (known || !below) && !wide && 1 < vec && vec == most && shared % (below ? many : many * vec) == 0 && this->count >= 1 << 20;
        const bool spans = along_of(held) >= 0 && !wide && this->count >= 1 << 20 && this->step(along_of(held)) == 1;
        for (int k = 0; k < K && spans; k++) every = operands[k].bytes > every ? operands[k].bytes : every;
        lanes = spans ? window_lanes(every) : 1;
        rows = pieces ? many : wide ? 1 : windows > 1 ? windows : many == 0 && several ? map_rows(vec) : 1;
    }
    // How many elements there are where so many rows of a thread count as one, and of windows' neighbours `lanes`.
    i64 apiece(int rows) const {
        const i64 along = this->size[this->rank - 1], below = this->size[this->rank - 1 - (this->rank > 1)];
        const i64 n = lanes > 1 ? this->count / along * ((along - 1) / lanes + 1) : this->count;
        return under ? n / below * ((below - 1) / rows + 1) : n / rows;
    }
    // Moves a dim of a multiple of so many rows, along which no index runs, next to the last; whether there is one.
    bool rows_last(const Operand (&operands)[K], int many) {
        for (int d = 0; d < this->rank - 1; d++) {
            bool still = this->size[d] % many == 0;
            for (int k = 0; k < K; k++) still = still && (operands[k].bytes > 0 || this->stride[k][d] == 0);
            if (!still) continue;
            for (; d < this->rank - 2; d++) this->exchange(d, d + 1);
            return true;
        }
        return false;
    }
    i64 step(int k) const { return this->stride[k][this->rank - 1]; }
    // Whether all operands but OTHERWISE lie as the elements follow one another, in aligned vectors of `each`, and a row's own are less than
    // half of that.
    bool flat(const Operand (&operands)[K], u64 otherwise, int each) const {
        bool found = vec < most && 2 * vec < each && this->count <= INT_MAX;
        for (int k = 0; k < K && found; k++) {
            found = this->last(k) <= INT_MAX;
            if (k < SPLATS && otherwise >> k & 1) continue;
            i64 dense = 1;
            for (int d = this->rank - 1; d >= 0; d--) found = found && this->stride[k][d] == dense, dense *= this->size[d];
            found = found && uintptr_t(operands[k].pointer) % u64(each * operands[k].bytes) == 0;
        }
        return found;
    }
    // Vectors need rows of whole vectors, and each operand that moves along the row in unit steps and aligned.
    bool fits(const Operand (&operands)[K]) const {
        if (this->rank > 1 && this->size[this->rank - 1] % vec != 0) return false;
        for (int k = 0; k < K; k++) {
            const i64 bytes = operands[k].bytes;
            if (step(k) == 0) continue;
            if (step(k) != 1 || (bytes > 0 && uintptr_t(operands[k].pointer) % u64(vec * bytes) != 0)) return false;
            for (int d = 0; d < this->rank - 1; d++) {
                if (this->stride[k][d] % vec != 0) return false;
            }
        }
        return true;
    }
};

template <int RANK, int K, typename Index, typename... P, typename... A>
cudaError_t launch(void (*kernel)(Layout<RANK, K, Index>, P...), const Plan<K>& plan, int vec, cudaStream_t stream, A... arguments) {
    Layout<RANK, K, Index> layout;
    const int rows = RANK > 1 ? plan.rows : 1, each = 128 * vec;
    layout.n = Index(plan.apiece(rows));
    plan.put(layout.size, layout.stride);
    if (!plan.pieces && !plan.under) {
        layout.size[RANK > 1 ? RANK - 2 : 0] /= rows;
        for (int k = 0; k < K; k++) layout.stride[k][RANK > 1 ? RANK - 2 : 0] *= rows;
    }
    return start(kernel, layout, (i64(layout.n) + each - 1) / each, 128, 1, 0, false, stream, arguments...);
}

template <int RANK_, int VEC_, typename Index_, u64 SPLAT_, int ROWS_ = 1> struct Variant {
    static constexpr int RANK = RANK_, VEC = VEC_;
    static constexpr u64 SPLAT = SPLAT_;
    using Index = Index_;
};
template <int RANK, int VEC, typename Index, u64 SPLAT, int ROWS> constexpr int rows_of(Variant<RANK, VEC, Index, SPLAT, ROWS>) { return ROWS; }

// Kernels that any operands may stand still in, as the layout says, for vectors of up to VEC elements.
template <int VEC, u64 HELD, int K, typename Run> cudaError_t run_given(const Plan<K>& plan, const Run& run) {
    if constexpr (VEC == 1) {
        return cudaErrorInvalidValue;
    } else {
        if (plan.vec < VEC) return run_given<VEC / 2, HELD>(plan, run);
        if constexpr (HELD != 0) {
            constexpr int PIECES = pieces_of(HELD);
            if (plan.rows > 1 && plan.rank <= 4) return run(Variant<PIECES ? 4 : 2, VEC, unsigned, GIVEN, PIECES ? PIECES : map_rows(VEC)>(), VEC);
        }
        if (plan.wide || plan.rank > 4) return run(Variant<8, VEC, u64, GIVEN>(), VEC);
        return run(Variant<4, VEC, unsigned, GIVEN>(), VEC);
    }
}

// Launch a map; `kernel(variant)` gives the kernel for a variant. SPLAT has the operands that lack the last dim, VEC is the elements of a
// vector where these alone stand still, MOST those where all do that are read; HELD has those that lack other dims, or says `pieces`; where
// all but OTHERWISE lie as their elements follow one another, vectors may be EACH of these, FLAT.
// cudaErrorInvalidValue where more than 8 dims remain once those that can be are merged.
template <int VEC, int MOST, u64 SPLAT, u64 HELD = 0, u64 OTHERWISE = 0, int EACH = 1, int K, typename Kernel, typename... A>
cudaError_t run_map(int rank, const i64* size, const Operand (&operands)[K], cudaStream_t stream, Kernel kernel, A... arguments) {
    if (rank < 0 || rank > 64) return cudaErrorInvalidValue;
    const Plan<K> plan(rank, size, operands, HELD, MOST == 1);
    const auto run = [&](auto variant, int vec) { return launch(kernel(variant), plan, vec, stream, arguments...); };
    if (plan.count == 0) return cudaSuccess;
    if (plan.rank > 8) return cudaErrorInvalidValue;
    if constexpr (OTHERWISE != 0) {
        if (plan.rank <= 4 && plan.flat(operands, OTHERWISE, EACH)) return run(Variant<4, EACH, unsigned, TOLD>(), EACH);
    }
    if (plan.vec > 1 && (plan.vec != VEC || plan.splat != SPLAT || plan.rank > 4)) return run_given<MOST, HELD>(plan, run);
    if (plan.vec > 1) {
        if constexpr (pieces_of(HELD) > 1) {
            if (plan.rows > 1) return run(Variant<4, VEC, unsigned, SPLAT, pieces_of(HELD)>(), VEC);
        }
        if (plan.wide && plan.rank == 1) return run(Variant<1, VEC, u64, SPLAT>(), VEC);
        if (plan.wide) return run(Variant<4, VEC, u64, SPLAT>(), VEC);
        if (plan.rank == 1) return run(Variant<1, VEC, unsigned, SPLAT>(), VEC);
        if constexpr (HELD != 0 && pieces_of(HELD) == 0) {
            if (plan.rows == map_rows(VEC)) return run(Variant<2, VEC, unsigned, SPLAT, map_rows(VEC)>(), VEC);
        }
        if (plan.rank == 2) return run(Variant<2, VEC, unsigned, SPLAT>(), VEC);
        return run(Variant<4, VEC, unsigned, SPLAT>(), VEC);
    }
    if (plan.wide) return run(Variant<8, 1, u64, 0>(), 1);
    if constexpr (are_windows(HELD)) {
        constexpr int LANES = VEC > 1 ? VEC : 1, MANY = windows_of(HELD), HALF = index_of(HELD) < 0 ? MANY / 2 : MANY;
        if (MANY > 1 && plan.lanes > 1 && plan.rows == MANY && plan.rank <= 4) return run(Variant<4, LANES, unsigned, 0, MANY>(), 1);
        if (MANY > 1 && plan.lanes > 1 && plan.rows == MANY) return run(Variant<8, LANES, unsigned, 0, MANY>(), 1);
        if (plan.lanes > 1 && plan.rank <= 2) return run(Variant<2, LANES, unsigned, 0>(), 1);
        if (plan.lanes > 1) return run(Variant<8, LANES, unsigned, 0>(), 1);
        if (plan.rows == MANY && MANY > 1 && plan.rank <= 4) return run(Variant<4, 1, unsigned, 0, MANY>(), 1);
        if (plan.rows == MANY && MANY > 1) return run(Variant<8, 1, unsigned, 0, MANY>(), 1);
        if (plan.rows == HALF && HALF > 1) return run(Variant<8, 1, unsigned, 0, HALF>(), 1);
    }
    if (plan.rank <= 2) return run(Variant<2, 1, unsigned, 0>(), 1);
    return run(Variant<8, 1, unsigned, 0>(), 1);
}

}  // namespace host
}  // namespace
#endif
