// Operands that are the parts of one tensor along its innermost dim (x[..., 0], x[..., 1]): where they lie in turns, their vectors are
// read and written as one.
#pragma once
#include "kgen_maps.cuh"

// Vectors of LANES neighbours of each of P parts, of ROWS rows.
template <typename T, int LANES, int ROWS, int P> struct Parts { Vector<T, LANES> part[P][ROWS]; };

// Those of operands K, which begin at `first`, `rest`; in turns where TURNS says so (the last few of a flat tensor go one by one).
template <int LANES, u64 SPLAT, bool TURNS, int ROWS, int FIRST, int... K, typename Layout, typename Index, int N, typename T, typename... P>
__device__ inline auto load_parts(const Layout& layout, const Index (&at)[N], const T* first, const P*... rest) {
    constexpr int COUNT = 1 + sizeof...(K);
    Parts<T, LANES, ROWS, COUNT> found;
    if constexpr (TURNS && LANES > 1) {
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const T* p = first + at[FIRST] + r * layout.below(FIRST, ROWS);
            const auto v = *reinterpret_cast<const Vector<T, COUNT * LANES>*>(p);
            #pragma unroll
            for (int k = 0; k < COUNT * LANES; k++) found.part[k % COUNT][r].at[k / COUNT] = v.at[k];
        }
    } else {
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int part = 0;
            found.part[part++][r] = load<LANES, SPLAT, FIRST>(layout, first + at[FIRST] + r * layout.below(FIRST, ROWS));
            ((found.part[part++][r] = load<LANES, SPLAT, K>(layout, rest + at[K] + r * layout.below(K, ROWS))), ...);
        }
    }
    return found;
}
// The vectors of parts as one, in turns.
template <typename T, int LANES, typename... V> __device__ inline auto in_turns(const Vector<T, LANES>& first, const V&... rest) {
    constexpr int COUNT = 1 + sizeof...(rest);
    Vector<T, COUNT * LANES> all;
    #pragma unroll
    for (int k = 0; k < LANES; k++) {
        int part = COUNT * k;
        all.at[part++] = first.at[k];
        ((all.at[part++] = rest.at[k]), ...);
    }
    return all;
}

#ifndef __CUDACC_RTC__
namespace {
namespace host {

template <bool IS_> struct Turns { static constexpr bool IS = IS_; };

// As `run_map`, where all of PARTS (a bit for each group of operands) may lie in turns: COUNT neighbours that begin at `groups`.
template <int VEC, int MOST, u64 SPLAT, u64 HELD, int COUNT, int GROUPS, int K, typename Kernel, typename... A>
cudaError_t run_parts(const int (&groups)[GROUPS][COUNT], int rank, const i64* size, const Operand (&operands)[K], cudaStream_t stream,
                      Kernel kernel, A... arguments) {
    const auto apart = [&](auto variant) { return kernel(variant, Turns<false>()); };
    const auto plain = [&] { return run_map<VEC, MOST, SPLAT, HELD>(rank, size, operands, stream, apart, arguments...); };
    if (rank < 1 || rank > 64) return plain();
    // A group is then one operand, whose elements are COUNT neighbours.
    Operand turned[K];
    i64 strides[GROUPS][64];
    for (int k = 0; k < K; k++) turned[k] = operands[k];
    for (int g = 0; g < GROUPS; g++) {
        const Operand& first = operands[groups[g][0]];
        for (int d = 0; d < rank; d++) {
            if (size[d] != 1 && first.stride[d] % COUNT != 0) return plain();
            strides[g][d] = first.stride[d] / COUNT;
        }
        for (int p = 0; p < COUNT; p++) {
            const Operand& own = operands[groups[g][p]];
            if (static_cast<const char*>(own.pointer) != static_cast<const char*>(first.pointer) + p * own.bytes) return plain();
            for (int d = 0; d < rank; d++) if (size[d] != 1 && own.stride[d] != first.stride[d]) return plain();
            turned[groups[g][p]] = {first.pointer, strides[g], COUNT * own.bytes, own.written};
        }
    }
    Plan<K> plan(rank, size, turned, HELD);
    if (plan.count == 0) return cudaSuccess;
    if (plan.vec < 2 || plan.rank > 4 || plan.wide) return plain();
    for (int g = 0; g < GROUPS; g++) {
        if (plan.stride[groups[g][0]][plan.rank - 1] != 1) return plain();  // it stands still
        for (int p = 0; p < COUNT; p++) {
            for (int d = 0; d < plan.rank; d++) plan.stride[groups[g][p]][d] *= COUNT;
            if (plan.last(groups[g][p]) > UINT_MAX) return plain();
        }
    }
    const auto run = [&](auto variant, int vec) { return launch(kernel(variant, Turns<true>()), plan, vec, stream, arguments...); };
    if constexpr (MOST >= 2 * COUNT) return run_given<MOST / COUNT, HELD>(plan, run);
    else return plain();
}

}  // namespace host
}  // namespace
#endif
