// What the blocks of a cluster tell one another of a row that they share.
#pragma once
#include "kgen_partials.cuh"

// The parts of a cluster's threads as one: each warp (or block, or each of its rows that lie side by side, ACROSS) sends its own to all
// blocks, and waits for theirs; WHOLE are those of a block. Where rows FOLLOW one another those of the next may come before all have these.
template <int R, bool FOLLOW, bool WHOLE, bool ACROSS, typename Walk, typename Part> __device__ inline Part part_of_cluster(Walk& walk, Part part) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    constexpr int COUNT = Words<Part>::COUNT;
    struct alignas(COUNT % 2 ? 4 : 8) Told { unsigned at[COUNT]; };
    __shared__ Told both[FOLLOW ? 2 : 1][16 * (Walk::THREADS / 32)];
    auto& parts = both[FOLLOW ? walk.round % 2 : 0];
    if constexpr (WHOLE) part = walk.team(part);
    else part = walk.template warp<32>(part);
    if (R == 0 && walk.round == 0) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    const unsigned odd = walk.round % 2, blocks = unsigned(walk.rows.segments), here = walk.barrier(R + 8 * odd);
    const unsigned parts_each = ACROSS ? walk.teams() : WHOLE ? 1 : walk.threads() / 32;
    const unsigned own = ACROSS ? threadIdx.x % walk.teams() : threadIdx.x / 32, t = ACROSS ? walk.lane : threadIdx.x % 32;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(here), "r"(blocks * parts_each * COUNT * 4) : "memory");
    }
    if (t < blocks && own < parts_each) {
        const Words<Part> words(part);
        unsigned there, its_barrier;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its_barrier) : "r"(here), "r"(t));
        #pragma unroll
        for (int k = 0; k < COUNT; k += COUNT % 2 ? 1 : 2) {
            const unsigned slot = unsigned(__cvta_generic_to_shared(&parts[walk.segment * parts_each + own].at[k]));
            asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(slot), "r"(t));
            if constexpr (COUNT % 2 == 0) {
                asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];"
                             :: "r"(there), "r"(words.at[k]), "r"(words.at[k + 1]), "r"(its_barrier) : "memory");
            } else {
                asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                             :: "r"(there), "r"(words.at[k]), "r"(its_barrier) : "memory");
            }
        }
    }
    walk.await(here, walk.round / 2 % 2);
    Part whole;
    for (unsigned s = ACROSS ? own : t; s < blocks * parts_each; s += ACROSS ? parts_each : 32) {
        Words<Part> words;
        #pragma unroll
        for (int k = 0; k < COUNT; k++) words.at[k] = parts[s].at[k];
        Walk::template rescales<Part>(0) && s == (ACROSS ? own : t) ? void(whole = words) : whole.add(words);  // to rescale a part of none takes as long as of any
    }
    return ACROSS ? whole : walk.template warp<32>(whole);
#else
    return part;  // there are no clusters, so this does not run
#endif
}
