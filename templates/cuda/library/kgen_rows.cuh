// Passes over rows: how they are walked, and what launches them.
#pragma once
#include "kgen_walk.cuh"

#ifndef __CUDACC_RTC__
// The host's part: merge the dims, choose how to walk, launch. NVRTC's callers do this for themselves.
namespace {
namespace host {

// An operand of a pass over rows: strides along the rows' dims and then along a row's. No bytes: an index, which has no memory.
struct RowOperand { const void* pointer; const i64* stride; int bytes; bool element; i64 gather_size = 0, gather_stride = 0; };

// Whether the device has thread-block clusters, and blocks this much shared memory beside their own 16 KB.
inline bool clusters(int shared) {
    int device = 0, major = 0, most = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return false;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess || major < 9) return false;
    return cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess && shared + 16384 <= most;
}

template <typename W> struct Way { using Walk = W; };

// The rows of K operands and the elements of a row: the dims of each merged, in the order of operand `main`. Rank at most 64.
template <int K> struct RowPlan {
    int rank[2] = {0, 0};
    i64 count[2] = {1, 1}, size[2][64], stride[2][K][64];
    i64 segments = 1, span = 0;
    bool wide = false;
    const RowOperand* operands;

    RowPlan(int dims, int outer, const i64* sizes, const RowOperand (&given)[K], int main) : operands(given) {
        if (dims < 0 || dims > 64) {
            rank[0] = 65;
            return;
        }
        for (int part = 0; part < 2; part++) {
            int& r = rank[part];
            for (int d = part ? outer : 0; d < (part ? dims : outer); d++) {
                count[part] *= sizes[d];
                if (sizes[d] == 1) continue;
                int p = r++;
                for (; p > 0 && stride[part][main][p - 1] < given[main].stride[d]; p--) move(part, p - 1, p);
                size[part][p] = sizes[d];
                for (int k = 0; k < K; k++) stride[part][k][p] = given[k].stride[d];
            }
            int inner = 0;
            for (int d = 1; d < r; d++) {
                bool merge = true;
                for (int k = 0; k < K; k++) merge = merge && stride[part][k][inner] == stride[part][k][d] * size[part][d];
                if (merge) size[part][d] *= size[part][inner];
                else inner++;
                move(part, d, inner);
            }
            if (r == 0) {  // one element
                size[part][0] = 1;
                for (int k = 0; k < K; k++) stride[part][k][0] = 0;
            }
            r = inner + 1;
        }
        for (int k = 0; k < K; k++) {
            i64 last = 0;
            for (int part = 0; part < 2; part++) {
                for (int d = 0; d < rank[part]; d++) last += (size[part][d] - 1) * stride[part][k][d];
            }
            wide = wide || last > UINT_MAX - (1 << 20);
        }
        wide = wide || count[0] > UINT_MAX - (1 << 20) || count[1] > UINT_MAX - (1 << 20);
    }
    void move(int part, int from, int to) {
        size[part][to] = size[part][from];
        for (int k = 0; k < K; k++) stride[part][k][to] = stride[part][k][from];
    }
    i64 place(int k) const { return i64(uintptr_t(operands[k].pointer) / unsigned(operands[k].bytes)); }
    // Whether the operands of `mask` can be read in vectors of `vec` from where operand `main` is aligned.
    bool vectors(u64 mask, int main, int vec) const {
        bool fit = rank[0] == 1 && rank[1] == 1 && !wide && stride[1][main][0] == 1;
        for (int k = 0; k < K; k++) {
            if (!(mask >> k & 1)) continue;
            fit = fit && stride[1][k][0] == 1 && (stride[0][k][0] - stride[0][main][0]) % vec == 0;
            fit = fit && (place(k) - place(main)) % vec == 0 && uintptr_t(operands[k].pointer) % unsigned(operands[k].bytes) == 0;
        }
        return fit;
    }
};

template <typename W, int K, int RR, int RI, int G, typename Index, typename... P, typename... A>
cudaError_t launch_rows(void (*kernel)(Rows<RR, RI, K, G, Index>, P...), const RowPlan<K>& plan, int main, int vec, int slot, i64 blocks,
                        int threads, int cluster, int shared, unsigned* work, cudaStream_t stream, A... arguments) {
    Rows<RR, RI, K, G, Index> rows = {};
    rows.rows = Index(plan.count[0]);
    rows.n = Index(plan.count[1]);
    rows.segments = Index(plan.segments);
    rows.span = Index(plan.span);
    rows.misaligned = plan.operands[main].bytes ? Index(plan.place(main) % vec) : 0;
    rows.slot = Index(slot);
    rows.work = work;
    for (int d = 0, from = plan.rank[0] - RR; d < RR; d++, from++) {  // padded by outer dims of size 1
        rows.row_size[d] = from < 0 ? 1 : Index(plan.size[0][from]);
        for (int k = 0; k < K; k++) rows.row_stride[k][d] = from < 0 ? 0 : Index(plan.stride[0][k][from]);
    }
    for (int d = 0, from = plan.rank[1] - RI; d < RI; d++, from++) {
        rows.size[d] = from < 0 ? 1 : Index(plan.size[1][from]);
        for (int k = 0; k < K; k++) rows.stride[k][d] = from < 0 ? 0 : Index(plan.stride[1][k][from]);
    }
    for (int k = 0, g = 0; k < K; k++) {
        if (plan.operands[k].gather_size == 0) continue;
        rows.gather_size[g] = plan.operands[k].gather_size;
        rows.gather_stride[g++] = plan.operands[k].gather_stride;
    }
    if (blocks > INT_MAX) return cudaErrorInvalidValue;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(blocks));
    config.blockDim = dim3(unsigned(threads));
    config.dynamicSmemBytes = size_t(shared);
    config.stream = stream;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = unsigned(cluster);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    if (cluster > 1) {
        config.attrs = &attribute;
        config.numAttrs = 1;
        const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
        if (error != cudaSuccess) return error;
    }
    return cudaLaunchKernelEx(&config, kernel, rows, P(arguments)...);
}

// What is known of a pass beside its operands: how many there are, and gathers; the operand whose layout leads; the elements of a vector;
// the operands that have the last dim of a row, as bits; the readings that reduce, and whether one more stores; the words of a result;
// the bytes of an element that stay on the chip; whether launches may share a row; the readings that reduce and the words of a result where
// a row does not stay on the chip.
template <int OPERANDS_, int GATHERS_, int MAIN_, int VEC_, u64 WIDE_, int READINGS_, bool STORES_, int WORDS_, int HELD_, bool SPLITS_,
          int LONG_READINGS_ = READINGS_, int LONG_WORDS_ = WORDS_>
struct Pass {
    static constexpr int OPERANDS = OPERANDS_, GATHERS = GATHERS_, MAIN = MAIN_, VEC = VEC_, READINGS = READINGS_, WORDS = WORDS_, HELD = HELD_;
    static constexpr int LONG_READINGS = LONG_READINGS_, LONG_WORDS = LONG_WORDS_;
    static constexpr u64 WIDE = WIDE_;
    static constexpr bool STORES = STORES_, SPLITS = SPLITS_;

    // How a pass is walked: `Walk` with the arguments that follow from the pass in place.
    template <int THREADS, int BLOCKS, int TEAM, bool ACROSS, int VECTORS, int V, bool EDGES, u64 W, int M, bool SEGMENTS, int KEEP, bool CLUSTER,
              int STEP, int RR, int RI, typename Index>
    using Walked = Walk<THREADS, BLOCKS, TEAM, ACROSS, VECTORS, V, EDGES, W, M, SEGMENTS, KEEP, CLUSTER, STEP, RR, RI, OPERANDS, GATHERS, Index>;

    // The bytes at most of a kernel's own shared memory.
    static constexpr int declared(int threads, int team, bool across, bool cluster, int words = WORDS, int readings = READINGS) {
        int size = 0, slots = 2;
        while (slots * 32 < threads) slots *= 2;
        if (across) slots = threads;
        const int one = slots * words, both = 2 * one < 4096 ? 2 * one : 4096;
        if (across ? team > 1 : team <= 0 || team > 32) size += wider(one, both);
        if (cluster) size += 16 * (threads / 32) * words;
        return 4 * size * readings + (cluster ? 128 : 0);
    }
    // The rows that lie side by side in a block, a team of eight threads each; 1 where their results take more memory than there is.
    static constexpr int side() {
        for (int rows = 32; rows >= 4; rows /= 2) {
            if (declared(8 * rows, 8, true, false, LONG_WORDS, LONG_READINGS) <= 48 * 1024) return rows;
        }
        return 1;
    }
    static constexpr bool clustered() { return HELD > 0 && READINGS > 0 && READINGS <= 16 && declared(256, 256, false, true) <= 48 * 1024; }
};

// A launch for the segments of each reading, and one to combine their results, from number STEP on.
template <typename P, int STEP, typename Run> cudaError_t run_steps(const Run& run, i64 rows, i64 segments) {
    if constexpr (STEP < 2 * P::LONG_READINGS + P::STORES) {
        using Step = typename P::template Walked<256, 3, 256, false, 4, P::VEC, true, P::WIDE, P::MAIN, true, 0, false, STEP, 1, 1, unsigned>;
        const cudaError_t error = run(Way<Step>(), P::VEC, STEP % 2 ? rows : rows * segments, 256, 1, 0);
        return error == cudaSuccess ? run_steps<P, STEP + 1>(run, rows, segments) : error;
    } else {
        return cudaSuccess;
    }
}

// Launch a pass on rows of `rank` dims, of which `outer` are the rows'; `kernel(way)` gives the kernel for a way of walking.
// cudaErrorInvalidValue where more than 8 dims of either remain once those that can be are merged.
template <typename P, typename Kernel, typename... A>
cudaError_t run_rows(P, int rank, int outer, const i64* size, const RowOperand (&operands)[P::OPERANDS], cudaStream_t stream, Kernel kernel,
                     A... arguments) {
    RowPlan<P::OPERANDS> plan(rank, outer, size, operands, P::MAIN);
    if (plan.count[0] == 0) return cudaSuccess;
    if (plan.rank[0] > 8 || plan.rank[1] > 8) return cudaErrorInvalidValue;
    unsigned* work = nullptr;
    const auto run = [&](auto way, int vec, i64 blocks, int threads, int cluster, int shared) {
        return launch_rows<typename decltype(way)::Walk>(kernel(way), plan, P::MAIN, vec, P::LONG_WORDS, blocks, threads, cluster, shared, work, stream,
                                                         arguments...);
    };
    const i64 rows = plan.count[0];
    if constexpr (P::READINGS == 0 && !P::STORES) {  // one element for each row
        using Merged = typename P::template Walked<256, 4, 1, false, 1, 1, false, 0, 0, false, 0, false, -1, 1, 1, unsigned>;
        if (plan.rank[0] == 1 && !plan.wide) return run(Way<Merged>(), 1, (rows + 255) / 256, 256, 1, 0);
        using Any = typename P::template Walked<256, 4, 1, false, 1, 1, false, 0, 0, false, 0, false, -1, 8, 1, u64>;
        return run(Way<Any>(), 1, (rows + 255) / 256, 256, 1, 0);
    } else {
        constexpr int VEC = P::VEC, MAIN = P::MAIN;
        constexpr u64 WIDE = P::WIDE;
        const i64 elements = plan.count[1], vectors = elements / VEC;  // whole ones, wherever the row begins within one
        plan.span = vectors;
        if (plan.vectors(WIDE, MAIN, VEC)) {
            using Warp = typename P::template Walked<128, 8, 32, false, 4, VEC, true, WIDE, MAIN, false, 1, false, -1, 1, 1, unsigned>;
            if (vectors <= 128) return run(Way<Warp>(), VEC, (rows + 3) / 4, 128, 1, 0);
            using Block = typename P::template Walked<512, 1, 0, false, 4, VEC, true, WIDE, MAIN, false, 1, false, -1, 1, 1, unsigned>;
            if (vectors <= 2048) return run(Way<Block>(), VEC, rows, int((vectors + 127) / 128 * 32), 1, 0);
            if constexpr (P::clustered()) {  // a cluster of blocks keeps the row
                constexpr int SHARED = 256 * 8 * VEC * P::HELD;
                if (vectors <= 8 * 2048 && clusters(SHARED)) {  // of two blocks at least
                    plan.segments = (vectors + 2047) / 2048;
                    plan.span = (vectors + plan.segments - 1) / plan.segments;
                    plan.segments = (vectors + plan.span - 1) / plan.span;
                    using Cluster = typename P::template Walked<256, 3, 256, false, 8, VEC, true, WIDE, MAIN, false, 2, true, -1, 1, 1, unsigned>;
                    return run(Way<Cluster>(), VEC, rows * plan.segments, 256, int(plan.segments), SHARED);
                }
            }
            for (plan.span = 1024; plan.span < 16384 && plan.span * 4096 <= vectors; plan.span *= 2) {}
            plan.segments = (vectors + plan.span - 1) / plan.span;
            if constexpr (P::SPLITS && P::READINGS > 0) {
                if (rows < 528 && plan.segments > 1 && rows * plan.segments < INT_MAX) {  // few rows, which blocks share
                    const size_t bytes = size_t(rows * (plan.segments + P::LONG_READINGS)) * P::LONG_WORDS * 4;
                    cudaError_t error = cudaMallocAsync(reinterpret_cast<void**>(&work), bytes, stream);
                    if (error == cudaSuccess) error = run_steps<P, 0>(run, rows, plan.segments);
                    if (work) cudaFreeAsync(work, stream);
                    return error;
                }
            }
            using Loop = typename P::template Walked<256, 3, 256, false, 4, VEC, true, WIDE, MAIN, true, 0, false, -1, 1, 1, unsigned>;
            return run(Way<Loop>(), VEC, rows, 256, 1, 0);
        }
        if (plan.stride[1][MAIN][plan.rank[1] - 1] * operands[MAIN].bytes >= 32) {  // elements far apart: a thread a row, side by side
            plan.span = 512;
            plan.segments = elements > 512 ? (elements + 511) / 512 : 1;
            constexpr int SIDE = P::side() > 1 ? P::side() : 128, TEAM = P::side() > 1 ? 8 : 1;
            using Across = typename P::template Walked<SIDE * TEAM, 3, TEAM, true, 8, 1, false, 0, MAIN, true, 0, false, -1, 8, 8, u64>;
            return run(Way<Across>(), 1, (rows + SIDE - 1) / SIDE, SIDE * TEAM, 1, 0);
        }
        plan.span = 1024;
        plan.segments = elements > 1024 ? (elements + 1023) / 1024 : 1;
        using Strided = typename P::template Walked<256, 3, 256, false, 4, 1, false, 0, MAIN, true, 0, false, -1, 8, 8, u64>;
        return run(Way<Strided>(), 1, rows, 256, 1, 0);
    }
}

}  // namespace host
}  // namespace
#endif
