// Maps: kernels that compute each element by itself, and what launches them.
#pragma once
#include "kgen_numbers.cuh"

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
// The host's part: merge the dims, choose the variant, launch. NVRTC's callers do this for themselves.
namespace {
namespace host {

struct Operand { const void* pointer; const i64* stride; int bytes; };  // no bytes: an index, which has no memory

// All elements of K operands (the last is written) in one order: dims merged, the last one innermost. Rank at most 64.
template <int K> struct Plan {
    int rank = 0, vec = 1;
    bool wide = false;
    u64 splat = 0;
    i64 n = 1, size[64], stride[K][64];

    Plan(int dims, const i64* sizes, const Operand (&operands)[K], int most) {
        if (dims < 0 || dims > 64) {
            rank = 65;
            return;
        }
        for (int d = 0; d < dims; d++) {
            n *= sizes[d];
            if (sizes[d] == 1) continue;
            int p = rank++;  // insert by the last operand's stride, the largest first
            for (; p > 0 && stride[K - 1][p - 1] < operands[K - 1].stride[d]; p--) move(p - 1, p);
            size[p] = sizes[d];
            for (int k = 0; k < K; k++) stride[k][p] = operands[k].stride[d];
        }
        int inner = 0;  // merge each dim into the one before it where every operand steps alike
        for (int d = 1; d < rank; d++) {
            bool merge = true;
            for (int k = 0; k < K; k++) merge = merge && stride[k][inner] == stride[k][d] * size[d];
            if (merge) size[d] *= size[inner];
            else inner++;
            move(d, inner);
        }
        if (rank == 0) {  // one element
            size[0] = 1;
            for (int k = 0; k < K; k++) stride[k][0] = 1;
        }
        rank = inner + 1;

        // Vectors need rows of whole vectors, and each operand that moves along the row in unit steps and aligned.
        bool vectors = rank == 1 || size[inner] % most == 0;
        wide = n > UINT_MAX - 128 * most;
        for (int k = 0; k < K; k++) {
            i64 last = 0, unit = stride[k][inner], bytes = operands[k].bytes;
            for (int d = 0; d <= inner; d++) {
                last += (size[d] - 1) * stride[k][d];
                if (d < inner && unit != 0 && bytes != 0) vectors = vectors && stride[k][d] % most == 0;
            }
            if (unit == 0) splat |= u64(1) << k;
            else vectors = vectors && unit == 1 && (bytes == 0 || uintptr_t(operands[k].pointer) % u64(most * bytes) == 0);
            wide = wide || last > UINT_MAX;
        }
        if (vectors) vec = most;
    }
    void move(int from, int to) {
        size[to] = size[from];
        for (int k = 0; k < K; k++) stride[k][to] = stride[k][from];
    }
};

template <int RANK, int K, typename Index, typename... P, typename... A>
cudaError_t launch(void (*kernel)(Layout<RANK, K, Index>, P...), const Plan<K>& plan, int vec, cudaStream_t stream, A... arguments) {
    Layout<RANK, K, Index> layout;
    layout.n = Index(plan.n);
    for (int d = 0, from = plan.rank - RANK; d < RANK; d++, from++) {  // padded by outer dims of size 1
        layout.size[d] = from < 0 ? 1 : Index(plan.size[from]);
        for (int k = 0; k < K; k++) layout.stride[k][d] = from < 0 ? 0 : Index(plan.stride[k][from]);
    }
    const i64 blocks = (plan.n + 128 * vec - 1) / (128 * vec);
    if (blocks > INT_MAX) return cudaErrorInvalidValue;
    kernel<<<unsigned(blocks), 128, 0, stream>>>(layout, arguments...);
    return cudaGetLastError();
}

template <int RANK_, int VEC_, typename Index_, u64 SPLAT_> struct Variant {
    static constexpr int RANK = RANK_, VEC = VEC_;
    static constexpr u64 SPLAT = SPLAT_;
    using Index = Index_;
};

// Launch a map; `kernel(variant)` gives the kernel for a variant, SPLAT has the operands that lack the last dim: other cases of inner
// stride 0 go one by one. cudaErrorInvalidValue where more than 8 dims remain once those that can be are merged.
template <int VEC, u64 SPLAT, int K, typename Kernel, typename... A>
cudaError_t run_map(int rank, const i64* size, const Operand (&operands)[K], cudaStream_t stream, Kernel kernel, A... arguments) {
    const Plan<K> plan(rank, size, operands, VEC);
    const auto run = [&](auto variant, int vec) { return launch(kernel(variant), plan, vec, stream, arguments...); };
    if (plan.n == 0) return cudaSuccess;
    if (plan.vec == VEC && plan.splat == SPLAT && plan.rank <= 4) {
        if (plan.wide && plan.rank == 1) return run(Variant<1, VEC, u64, SPLAT>(), VEC);
        if (plan.wide) return run(Variant<4, VEC, u64, SPLAT>(), VEC);
        if (plan.rank == 1) return run(Variant<1, VEC, unsigned, SPLAT>(), VEC);
        if (plan.rank == 2) return run(Variant<2, VEC, unsigned, SPLAT>(), VEC);
        return run(Variant<4, VEC, unsigned, SPLAT>(), VEC);
    }
    if (plan.rank > 8) return cudaErrorInvalidValue;
    if (plan.wide) return run(Variant<8, 1, u64, 0>(), 1);
    if (plan.rank <= 2) return run(Variant<2, 1, unsigned, 0>(), 1);
    return run(Variant<8, 1, unsigned, 0>(), 1);
}

}  // namespace host
}  // namespace
#endif
