// Maps: kernels that compute each element by itself, and what launches them.
#pragma once
#include "kgen_host.cuh"

template <int LANES, u64 SPLAT, typename T> __device__ inline Vector<T, LANES> load(const T* p) {
    if constexpr (SPLAT == 0) {
        return *reinterpret_cast<const Vector<T, LANES>*>(p);
    } else {
        Vector<T, LANES> v;
        #pragma unroll
        for (int k = 0; k < LANES; k++) v.at[k] = *p;
        return v;
    }
}
// The same of ROWS rows that lie `below` one another.
template <typename V, int ROWS> struct Several {
    V row[ROWS];
    __device__ const V& operator[](int r) const { return row[r]; }
};
template <int LANES, u64 SPLAT, int ROWS, typename T, typename Index>
__device__ inline auto load_rows(const T* p, Index below) {
    Several<Vector<T, LANES>, ROWS> v;
    #pragma unroll
    for (int r = 0; r < ROWS; r++) v.row[r] = load<LANES, SPLAT>(p + r * below);
    return v;
}
template <int LANES, typename T> __device__ inline void store(T* p, const Vector<T, LANES>& v) {
    *reinterpret_cast<Vector<T, LANES>*>(p) = v;
}

// The dims of K operands, merged, outermost first.
template <int RANK, int K, typename Index> struct Layout {
    Index n, size[RANK], stride[K][RANK];

    // Where element i lies in each operand.
    __device__ void locate(Index i, Index (&at)[K]) const {
        #pragma unroll
        for (int k = 0; k < K; k++) at[k] = 0;
        #pragma unroll
        for (int d = RANK - 1; d >= 0; d--) {
            Index outer = d > 0 ? i / size[d] : 0, inner = i - outer * size[d];
            #pragma unroll
            for (int k = 0; k < K; k++) at[k] += inner * stride[k][d];
            i = outer;
        }
    }
    __device__ Index step(int k) const { return stride[k][RANK - 1]; }
    // From one row to the next, where `size` counts each `rows` of them as one.
    __device__ Index below(int k, int rows) const { return RANK > 1 ? stride[k][RANK > 1 ? RANK - 2 : 0] / rows : 0; }
};

#ifndef __CUDACC_RTC__
// The host's part: choose the variant, as kgen's runtime does (`plan` in kgen/runtime/nvrtc.py), and launch it.
namespace {
namespace host {

struct Operand { const void* pointer; const i64* stride; int bytes; };  // no bytes: an index, which has no memory

// All elements of K operands (the last is written) in one order, and how they are walked. Rank at most 64.
template <int K> struct Plan : Dims<K> {
    int vec = 1, rows = 1;
    bool wide = false;
    u64 splat = 0;

    // In vectors of up to `most` elements, where the operands of `still` alone stand still along the innermost dim; of 4 rows a thread,
    // where those of `held` stand still from row to row.
    Plan(int dims, const i64* sizes, const Operand (&operands)[K], int most, u64 still, u64 held) {
        this->merge(dims, sizes, K - 1, 1, [&](int k) { return operands[k].stride; });
        for (int k = 0; k < K && k < 64; k++) splat |= u64(step(k) == 0) << k;
        vec = splat == still ? most : 1;
        while (vec > 1 && !fits(operands)) vec /= 2;
        if (vec == 1) splat = 0;
        wide = this->count > UINT_MAX - 128 * vec;
        bool several = held != 0 && this->rank == 2 && 1 < vec && vec == most && this->size[0] % 4 == 0 && this->count >= 1 << 20;
        for (int k = 0; k < K; k++) {
            wide = wide || this->last(k) > UINT_MAX;
            several = several && (k >= 64 || !(held >> k & 1) || this->stride[k][0] == 0);
        }
        rows = several && !wide ? 4 : 1;
    }
    i64 step(int k) const { return this->stride[k][this->rank - 1]; }
    // Vectors need rows of whole vectors, and each operand that moves along the row in unit steps and aligned.
    bool fits(const Operand (&operands)[K]) const {
        if (this->rank > 1 && this->size[this->rank - 1] % vec != 0) return false;
        for (int k = 0; k < K; k++) {
            const i64 bytes = operands[k].bytes;
            if (step(k) == 0) continue;
            if (step(k) != 1 || (bytes > 0 && uintptr_t(operands[k].pointer) % u64(vec * bytes) != 0)) return false;
            for (int d = 0; d < this->rank - 1 && bytes > 0; d++) {
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
    layout.n = Index(plan.count / rows);
    plan.put(layout.size, layout.stride);
    layout.size[RANK > 1 ? RANK - 2 : 0] /= rows;
    for (int k = 0; k < K; k++) layout.stride[k][RANK > 1 ? RANK - 2 : 0] *= rows;
    return start(kernel, layout, (plan.count / rows + each - 1) / each, 128, 1, 0, stream, arguments...);
}

template <int RANK_, int VEC_, typename Index_, u64 SPLAT_, int ROWS_ = 1> struct Variant {
    static constexpr int RANK = RANK_, VEC = VEC_;
    static constexpr u64 SPLAT = SPLAT_;
    using Index = Index_;
};
template <int RANK, int VEC, typename Index, u64 SPLAT, int ROWS> constexpr int rows_of(Variant<RANK, VEC, Index, SPLAT, ROWS>) { return ROWS; }

// Shorter vectors, and those of more dims.
template <int VEC, u64 SPLAT, typename Run> cudaError_t run_shorter(int vec, const Run& run) {
    if constexpr (VEC == 1) {
        return cudaErrorInvalidValue;
    } else {
        return vec == VEC ? run(Variant<8, VEC, u64, SPLAT>(), VEC) : run_shorter<VEC / 2, SPLAT>(vec, run);
    }
}

// Launch a map; `kernel(variant)` gives the kernel for a variant, SPLAT has the operands that lack the last dim: other cases of inner
// stride 0 go one by one; HELD has those that lack others. cudaErrorInvalidValue where more than 8 dims remain once those that can be are merged.
template <int VEC, u64 SPLAT, u64 HELD = 0, int K, typename Kernel, typename... A>
cudaError_t run_map(int rank, const i64* size, const Operand (&operands)[K], cudaStream_t stream, Kernel kernel, A... arguments) {
    if (rank < 0 || rank > 64) return cudaErrorInvalidValue;
    const Plan<K> plan(rank, size, operands, VEC, SPLAT, HELD);
    const auto run = [&](auto variant, int vec) { return launch(kernel(variant), plan, vec, stream, arguments...); };
    if (plan.count == 0) return cudaSuccess;
    if (plan.rank > 8) return cudaErrorInvalidValue;
    if (plan.vec > 1 && (plan.vec < VEC || plan.rank > 4)) return run_shorter<VEC, SPLAT>(plan.vec, run);
    if (plan.vec > 1) {
        if (plan.wide && plan.rank == 1) return run(Variant<1, VEC, u64, SPLAT>(), VEC);
        if (plan.wide) return run(Variant<4, VEC, u64, SPLAT>(), VEC);
        if (plan.rank == 1) return run(Variant<1, VEC, unsigned, SPLAT>(), VEC);
        if constexpr (HELD != 0) {
            if (plan.rows == 4) return run(Variant<2, VEC, unsigned, SPLAT, 4>(), VEC);
        }
        if (plan.rank == 2) return run(Variant<2, VEC, unsigned, SPLAT>(), VEC);
        return run(Variant<4, VEC, unsigned, SPLAT>(), VEC);
    }
    if (plan.wide) return run(Variant<8, 1, u64, 0>(), 1);
    if (plan.rank <= 2) return run(Variant<2, 1, unsigned, 0>(), 1);
    return run(Variant<8, 1, unsigned, 0>(), 1);
}

}  // namespace host
}  // namespace
#endif
