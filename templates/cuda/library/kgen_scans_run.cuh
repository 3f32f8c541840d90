// Passes along rows: how they are walked, and what launches them, as kgen's runtime does it (kgen/runtime/scans.py).
#pragma once
#include "kgen_scans.cuh"
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
template <int K, u64 ALONG, u64 READ, bool BACK_, int PARTIAL_, int... BYTES> struct ScanPass {
    static constexpr int OPERANDS = K, PARTIAL = PARTIAL_;
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
    static constexpr int VEC = 16 / widest(), SOME = counted(ALONG & READ) <= SCAN_AHEAD_OPERANDS ? SCAN_AHEAD : 1;
    static constexpr bool MUCH = PARTIAL > 8 || counted(ALONG) > 3;
    static constexpr bool reads(int k) { return READ >> k & 1; }
    static constexpr u64 known(bool any) { return any ? 0 : ALONG; }
    // Rows that lie side by side, or are whole aligned vectors in all operands, or GENERAL.
    template <int TEAM, int THREADS, bool ASIDE, bool GENERAL, int STEP>
    using Walk = Along<THREADS, scans_resident(THREADS, MUCH), TEAM, VEC, (TEAM > 1 ? SOME : 1), ASIDE, BACK_, known(ASIDE || GENERAL), known(ASIDE || GENERAL),
                       STEP, GENERAL ? 8 : 1, K, std::conditional_t<GENERAL, u64, unsigned>>;
};

// Launch a pass whose rows are taken by teams of TEAM threads.
template <typename P, int TEAM, int THREADS, bool LAST, bool ASIDE, bool GENERAL, typename Kernel, typename... A>
cudaError_t scan_by(const Dims<P::OPERANDS>& row, i64 n, const ScanOperand (&operands)[P::OPERANDS], int outer, cudaStream_t stream, Kernel kernel,
                    A... arguments) {
    using Whole = typename P::template Walk<TEAM, THREADS, ASIDE, GENERAL, -1>;
    typename Whole::Layout layout = {};
    const i64 tile = i64(TEAM) * P::VEC, tiles = (n + tile - 1) / tile, teams = THREADS / TEAM;
    i64 span = SCAN_SPAN;
    while (tiles > span * SCAN_MOST) span *= 2;
    const i64 segments = (tiles + span - 1) / span;
    const i64 blocks = (row.count + teams - 1) / teams;
    layout.rows = decltype(layout.rows)(row.count);
    layout.n = decltype(layout.n)(n);
    layout.span = decltype(layout.n)(span);
    layout.segments = decltype(layout.segments)(segments);
    row.put(layout.row_size, layout.row_stride);
    for (int k = 0; k < P::OPERANDS; k++) layout.step[k] = decltype(layout.n)(operands[k].stride[outer]);
    if constexpr (LAST) {
        if (segments > 1 && blocks < (ASIDE ? SCAN_FEW_ASIDE : SCAN_FEW)) {
            void* work = nullptr;
            cudaError_t error = cudaMallocAsync(&work, size_t(row.count * segments * P::PARTIAL), stream);
            layout.work = static_cast<unsigned*>(work);
            const auto totals = kernel(ScanWay<typename P::template Walk<TEAM, THREADS, ASIDE, GENERAL, 0>>());
            const auto rest = kernel(ScanWay<typename P::template Walk<TEAM, THREADS, ASIDE, GENERAL, 1>>());
            if (error == cudaSuccess) error = start(totals, layout, blocks * segments, THREADS, 1, 0, stream, arguments...);
            if (error == cudaSuccess) error = start(rest, layout, blocks * segments, THREADS, 1, 0, stream, arguments...);
            if (work) cudaFreeAsync(work, stream);
            return error;
        }
    }
    return start(kernel(ScanWay<Whole>()), layout, blocks, THREADS, 1, 0, stream, arguments...);
}

template <typename P, bool ASIDE, bool GENERAL, int I, typename Kernel, typename... A>
cudaError_t scan_from(const Dims<P::OPERANDS>& row, i64 n, const ScanOperand (&operands)[P::OPERANDS], int outer, cudaStream_t stream,
                      Kernel kernel, A... arguments) {
    constexpr bool FITS = !ASIDE || 2 * P::PARTIAL * SCAN_ASIDE[sizeof(SCAN_ASIDE) / sizeof(ScanTeam) - 1].threads <= SCAN_STATIC;
    constexpr int LAST = FITS ? int((ASIDE ? sizeof(SCAN_ASIDE) : sizeof(SCAN_TEAMS)) / sizeof(ScanTeam)) - 1 : 0;
    constexpr ScanTeam team = ASIDE ? SCAN_ASIDE[I < LAST ? I : LAST] : SCAN_TEAMS[I];
    if constexpr (I < LAST) {
        if ((n + P::VEC - 1) / P::VEC > team.longest) {
            return scan_from<P, ASIDE, GENERAL, I + 1>(row, n, operands, outer, stream, kernel, arguments...);
        }
    }
    return scan_by<P, team.team, team.threads, I == LAST, ASIDE, GENERAL>(row, n, operands, outer, stream, kernel, arguments...);
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
    bool even = n % P::VEC == 0;
    for (int k = 0; k < P::OPERANDS; k++) {
        if (!operands[k].element || !operands[k].bytes) continue;
        even = even && step(k) == 1 && reinterpret_cast<uintptr_t>(operands[k].pointer) % (P::VEC * operands[k].bytes) == 0;
        for (int d = 0; d < row.rank; d++) even = even && row.stride[k][d] % P::VEC == 0;
    }
    if (aside && general) return scan_from<P, true, true, 0>(row, n, operands, outer, stream, kernel, arguments...);
    if (aside) return scan_from<P, true, false, 0>(row, n, operands, outer, stream, kernel, arguments...);
    if constexpr (P::VEC >= SCAN_ODD_ELEMENTS) {
        const i64 chunks = (n + P::VEC - 1) / P::VEC;
        if (n % P::VEC && chunks > SCAN_ODD_ABOVE && chunks <= SCAN_ODD[0].longest) {
            constexpr ScanTeam odd = SCAN_ODD[0];
            return scan_by<P, odd.team, odd.threads, false, false, true>(row, n, operands, outer, stream, kernel, arguments...);
        }
    }
    if (general || !even) return scan_from<P, false, true, 0>(row, n, operands, outer, stream, kernel, arguments...);
    return scan_from<P, false, false, 0>(row, n, operands, outer, stream, kernel, arguments...);
}

}  // namespace host
}  // namespace
#endif
