// Passes along rows: how they are walked, and what launches them, as kgen's runtime does it (kgen/runtime/scans.py).
#pragma once
#include "kgen_beside.cuh"
#include "kgen_chained.cuh"
#include "kgen_host.cuh"
#include "kgen_scans_table.cuh"

#ifndef __CUDACC_RTC__
namespace {
namespace host {

// An operand of a pass along rows: strides along the rows' dims and then along a row. No bytes: an index, which has no memory. `rows` counts
// the rows' dims that it is declared with.
struct ScanOperand { const void* pointer; const i64* stride; int bytes; bool element; int rows; };

template <typename W> struct ScanWay { using Walk = W; };

// A pass: a bit for each of K operands that has memory along a row, and for each that is read; the bytes of a partial, and those of elements.
template <int K, u64 ALONG_, u64 READ, bool BACK_, int PARTIAL_, int... BYTES> struct ScanPass {
    static constexpr int OPERANDS = K, PARTIAL = PARTIAL_;
    static constexpr bool BACK = BACK_;
    static constexpr u64 ALONG = ALONG_;
    static constexpr int widest() {
        const int bytes[] = {BYTES...};
        int found = 0;
        for (int k = 0; k < K; k++) found = ALONG >> k & 1 && bytes[k] > found ? bytes[k] : found;
        return found > 0 ? found : 8;
    }
    static constexpr int counted(u64 bits) {
        int found = 0;
        for (; bits; bits >>= 1) found += int(bits & 1);
        return found;
    }
    static constexpr int VEC = 16 / widest();
    static constexpr bool MANY_AHEAD = counted(ALONG & READ) <= SCAN_AHEAD_OPERANDS, MUCH = PARTIAL > 8 || counted(ALONG) > 3;
    static constexpr bool reads(int k) { return READ >> k & 1; }
    // The shared memory that tiles have in a block that takes them: for each operand a vector more.
    static constexpr int chained_shared(int threads, int parts) {
        const int bytes[] = {BYTES...};
        int found = 0;
        for (int k = 0; k < K; k++) found += (ALONG & READ) >> k & 1 ? ((threads * parts + 1) * VEC * bytes[k] + 15) / 16 * 16 : 0;
        return SCAN_STAGES * found;
    }
    // Rows side by side of a thread: those whose partials, twice for each thread and row, fit in shared memory; 0 where none do.
    static constexpr int beside(const ScanTeam& team, int parts) {
        return parts == 0 || 2 * PARTIAL * (team.threads + team.threads / team.team) * parts <= SCAN_STATIC ? parts : beside(team, parts / 2);
    }
};

// Who takes rows: of neighbours, or that lie side by side (ASIDE); whole aligned vectors in all operands, or GENERAL.
template <typename P, int TEAM, int THREADS, int PARTS, bool ASIDE, bool GENERAL> struct ScanWalks {
    static constexpr bool ODD = GENERAL && !ASIDE, SEVERAL = TEAM > 1 && P::MANY_AHEAD && !ODD;
    static constexpr int RANK = GENERAL ? 8 : 1, K = P::OPERANDS, VEC = P::VEC, AHEAD = SEVERAL ? (SCAN_AHEAD + PARTS - 1) / PARTS : 1;
    static constexpr int BLOCKS = scans_resident(THREADS, P::MUCH ? SCAN_MANY_REGISTERS : ODD ? SCAN_ODD_REGISTERS : SCAN_REGISTERS);
    static constexpr int CHAINED_BLOCKS = scans_resident(THREADS, P::MUCH ? SCAN_MANY_REGISTERS : SCAN_CHAINED_REGISTERS);
    static constexpr u64 KNOWN = GENERAL ? 0 : P::ALONG;
    using Index = std::conditional_t<GENERAL, u64, unsigned>;
    template <int STEP> using Side = Beside<THREADS, BLOCKS, TEAM, VEC, PARTS, P::BACK, KNOWN, STEP, RANK, K, Index>;
    using Whole = std::conditional_t<ASIDE, Side<-1>, Along<THREADS, BLOCKS, TEAM, VEC, PARTS, AHEAD, P::BACK, KNOWN, KNOWN, RANK, K, Index>>;
    template <int STEP>
    using Taken = std::conditional_t<ASIDE, Side<STEP>, Chained<THREADS, CHAINED_BLOCKS, VEC, PARTS, P::BACK, KNOWN, KNOWN, STEP, RANK, K, Index>>;
};

// Launch a pass whose rows are taken by teams of TEAM threads.
template <typename P, bool ASIDE, bool GENERAL, int TEAM, int THREADS, int PARTS, bool LAST, typename Kernel, typename... A>
cudaError_t scan_by(const Dims<P::OPERANDS>& row, i64 n, const ScanOperand (&operands)[P::OPERANDS], int outer, cudaStream_t stream, Kernel kernel,
                    A... arguments) {
    using Walks = ScanWalks<P, TEAM, THREADS, PARTS, ASIDE, GENERAL>;
    typename Walks::Whole::Layout layout = {};
    const i64 tile = i64(TEAM) * P::VEC * (ASIDE ? 1 : PARTS), side = THREADS / TEAM * (ASIDE ? PARTS : 1);
    const i64 segments = (n + tile - 1) / tile, blocks = (row.count + side - 1) / side;
    layout.rows = decltype(layout.rows)(row.count);
    layout.n = decltype(layout.n)(n);
    layout.segments = decltype(layout.segments)(segments);
    row.put(layout.row_size, layout.row_stride);
    for (int k = 0; k < P::OPERANDS; k++) layout.step[k] = decltype(layout.n)(operands[k].stride[outer]);
    if constexpr (LAST) {
        constexpr int SHARED = ASIDE ? 0 : P::chained_shared(THREADS, PARTS);
        constexpr int BESIDES = ASIDE ? 0 : 2 * ((THREADS / 32 * PARTS + 1) * P::PARTIAL + 4);
        int device = 0, room = 0;
        if (cudaGetDevice(&device) == cudaSuccess) cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        if (segments > SCAN_SHORT && blocks < (ASIDE ? SCAN_FEW_ASIDE : SCAN_FEW) && SHARED + BESIDES <= room) {
            const auto groups = [](i64 of, int group) { return (of + group - 1) / group; };
            const i64 few = groups(segments, SCAN_GROUP), told = ASIDE ? groups(segments, SCAN_GROUP_ASIDE) : few + groups(few, SCAN_GROUP);
            const i64 words = 1 + row.count * (segments + told) * (P::PARTIAL / 4);
            const i64 clears = words < i64(THREADS) * SCAN_TAKERS ? (words + THREADS - 1) / THREADS : SCAN_TAKERS;
            const i64 takes = ASIDE || blocks * segments < SCAN_TAKERS ? blocks * segments : SCAN_TAKERS;
            void* work = nullptr;
            cudaError_t error = cudaMallocAsync(&work, size_t(8 * words), stream);
            layout.work = static_cast<unsigned*>(work);
            const auto first = kernel(ScanWay<typename Walks::template Taken<0>>()), then = kernel(ScanWay<typename Walks::template Taken<1>>());
            if (error == cudaSuccess) error = start(first, layout, clears, THREADS, 1, SHARED, false, stream, arguments...);
            if (error == cudaSuccess) error = start(then, layout, takes, THREADS, 1, SHARED, true, stream, arguments...);
            if (work) cudaFreeAsync(work, stream);
            return error;
        }
    }
    return start(kernel(ScanWay<typename Walks::Whole>()), layout, blocks, THREADS, 1, 0, false, stream, arguments...);
}

template <typename P, bool ASIDE, bool GENERAL, int I, typename Kernel, typename... A>
cudaError_t scan_from(const Dims<P::OPERANDS>& row, i64 n, const ScanOperand (&operands)[P::OPERANDS], int outer, cudaStream_t stream,
                      Kernel kernel, A... arguments) {
    constexpr int COUNT = int((ASIDE ? sizeof(SCAN_ASIDE) : sizeof(SCAN_TEAMS)) / sizeof(ScanTeam));
    constexpr const ScanTeam& longest = ASIDE ? SCAN_ASIDE[COUNT - 1] : SCAN_TEAMS[COUNT - 1];
    constexpr int SIDE = ASIDE ? P::beside(longest, longest.parts) : 0;
    constexpr int LAST = (ASIDE ? SIDE == 0 : P::MUCH) ? COUNT - 2 : COUNT - 1;
    constexpr ScanTeam team = ASIDE ? SCAN_ASIDE[I] : SCAN_TEAMS[I];
    if constexpr (I < LAST) {
        if ((n + P::VEC - 1) / P::VEC > team.longest) {
            return scan_from<P, ASIDE, GENERAL, I + 1>(row, n, operands, outer, stream, kernel, arguments...);
        }
    }
    constexpr int PARTS = !ASIDE ? team.parts : GENERAL ? 1 : I == COUNT - 1 ? SIDE : team.parts;
    return scan_by<P, ASIDE, GENERAL, team.team, team.threads, PARTS, I == LAST && (team.team > 1)>(row, n, operands, outer, stream, kernel, arguments...);
}

// Launch a pass along rows of `rank` dims, of which all but the last are the rows'; `kernel(way)` gives the kernel for a way of walking.
// cudaErrorInvalidValue where more than 8 of those remain once those that can be are merged.
template <typename P, typename Kernel, typename... A>
cudaError_t run_scan(P, int rank, int outer, const i64* size, const ScanOperand (&operands)[P::OPERANDS], cudaStream_t stream, Kernel kernel,
                     A... arguments) {
    if (rank < 1 || rank > 64 || outer != rank - 1) return cudaErrorInvalidValue;
    const auto step = [&](int k) { return operands[k].stride[outer]; };
    const auto leads = [&](int k) {  // the operand whose layout is followed moves most
        const i64 s = step(k);
        return ((P::reads(k) * 2 + (s != 0)) * 128 + operands[k].rows) * 2 + (s == 1);
    };
    int main = -1;
    for (int k = 0; k < P::OPERANDS; k++) {
        if (operands[k].element && operands[k].bytes && (main < 0 || leads(k) > leads(main))) main = k;
    }
    if (main < 0) main = 0;
    Dims<P::OPERANDS> row;
    row.merge(outer, size, main, 0, [&](int k) { return operands[k].stride; });
    const i64 n = size[outer];
    if (row.count == 0 || n == 0) return cudaSuccess;
    if (row.rank > 8) return cudaErrorInvalidValue;
    i64 far = n > row.count * ((n + P::VEC - 1) / P::VEC) ? n : row.count * ((n + P::VEC - 1) / P::VEC);
    for (int k = 0; k < P::OPERANDS; k++) far = row.last(k) + (n - 1) * step(k) > far ? row.last(k) + (n - 1) * step(k) : far;
    const bool aside = n > 1 && step(main) * operands[main].bytes >= SCAN_SECTOR, general = row.rank > 1 || far > i64(UINT_MAX) - (1 << 21);
    const i64 vec = aside ? SCAN_ASIDE[0].parts : P::VEC;
    bool even = (aside ? row.count : n) % vec == 0;  // whether all operands are whole aligned vectors, along rows or of rows side by side
    for (int k = 0; k < P::OPERANDS; k++) {
        if (!operands[k].element || !operands[k].bytes) continue;
        even = even && (aside ? row.stride[k][0] : step(k)) == 1 && reinterpret_cast<uintptr_t>(operands[k].pointer) % (vec * operands[k].bytes) == 0;
        even = even && ((aside ? step(k) : row.stride[k][0]) % vec == 0 || (!aside && row.count == 1));
    }
    if (aside && (general || !even)) return scan_from<P, true, true, 0>(row, n, operands, outer, stream, kernel, arguments...);
    if (aside) return scan_from<P, true, false, 0>(row, n, operands, outer, stream, kernel, arguments...);
    if constexpr (P::VEC >= SCAN_ODD_ELEMENTS) {
        const i64 chunks = (n + P::VEC - 1) / P::VEC;
        if (n % P::VEC && chunks > SCAN_ODD_ABOVE && chunks <= SCAN_ODD[0].longest) {
            constexpr ScanTeam odd = SCAN_ODD[0];
            return scan_by<P, false, true, odd.team, odd.threads, odd.parts, false>(row, n, operands, outer, stream, kernel, arguments...);
        }
    }
    if (general || !even) return scan_from<P, false, true, 0>(row, n, operands, outer, stream, kernel, arguments...);
    return scan_from<P, false, false, 0>(row, n, operands, outer, stream, kernel, arguments...);
}

}  // namespace host
}  // namespace
#endif
