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
};

#ifndef __CUDACC_RTC__
// The host's part: choose the variant, as kgen's runtime does (`plan` in kgen/runtime/nvrtc.py), and launch it.
namespace {
namespace host {

struct Operand { const void* pointer; const i64* stride; int bytes; };  // no bytes: an index, which has no memory

// All elements of K operands (the last is written) in one order, and how they are walked. Rank at most 64.
template <int K> struct Plan : Dims<K> {
    int vec = 1;
    bool wide = false;
    u64 splat = 0;

    // In vectors of up to `most` elements, where the operands of `still` alone stand still along the innermost dim.
    Plan(int dims, const i64* sizes, const Operand (&operands)[K], int most, u64 still) {
        this->merge(dims, sizes, K - 1, 1, [&](int k) { return operands[k].stride; });
        for (int k = 0; k < K && k < 64; k++) splat |= u64(step(k) == 0) << k;
        vec = splat == still ? most : 1;
        while (vec > 1 && !fits(operands)) vec /= 2;
        if (vec == 1) splat = 0;
        wide = this->count > UINT_MAX - 128 * vec;
        for (int k = 0; k < K; k++) wide = wide || this->last(k) > UINT_MAX;
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
    layout.n = Index(plan.count);
    plan.put(layout.size, layout.stride);
    return start(kernel, layout, (plan.count + 128 * vec - 1) / (128 * vec), 128, 1, 0, stream, arguments...);
}

template <int RANK_, int VEC_, typename Index_, u64 SPLAT_> struct Variant {
    static constexpr int RANK = RANK_, VEC = VEC_;
    static constexpr u64 SPLAT = SPLAT_;
    using Index = Index_;
};

// Shorter vectors, and those of more dims.
template <int VEC, u64 SPLAT, typename Run> cudaError_t run_shorter(int vec, const Run& run) {
    if constexpr (VEC == 1) {
        return cudaErrorInvalidValue;
    } else {
        return vec == VEC ? run(Variant<8, VEC, u64, SPLAT>(), VEC) : run_shorter<VEC / 2, SPLAT>(vec, run);
    }
}

// Launch a map; `kernel(variant)` gives the kernel for a variant, SPLAT has the operands that lack the last dim: other cases of inner
// stride 0 go one by one. cudaErrorInvalidValue where more than 8 dims remain once those that can be are merged.
template <int VEC, u64 SPLAT, int K, typename Kernel, typename... A>
cudaError_t run_map(int rank, const i64* size, const Operand (&operands)[K], cudaStream_t stream, Kernel kernel, A... arguments) {
    if (rank < 0 || rank > 64) return cudaErrorInvalidValue;
    const Plan<K> plan(rank, size, operands, VEC, SPLAT);
    const auto run = [&](auto variant, int vec) { return launch(kernel(variant), plan, vec, stream, arguments...); };
    if (plan.count == 0) return cudaSuccess;
    if (plan.rank > 8) return cudaErrorInvalidValue;
    if (plan.vec > 1 && (plan.vec < VEC || plan.rank > 4)) return run_shorter<VEC, SPLAT>(plan.vec, run);
    if (plan.vec > 1) {
        if (plan.wide && plan.rank == 1) return run(Variant<1, VEC, u64, SPLAT>(), VEC);
        if (plan.wide) return run(Variant<4, VEC, u64, SPLAT>(), VEC);
        if (plan.rank == 1) return run(Variant<1, VEC, unsigned, SPLAT>(), VEC);
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
