// What plans of rows that follow one another have in common: who takes a row, and how many of these a device has at once.
#pragma once
#include "kgen_rounds.cuh"
#include "kgen_rows.cuh"
#include "kgen_rounds_table.cuh"

#ifndef __CUDACC_RTC__
namespace {
namespace host {

// Who takes a row, with so many blocks on a multiprocessor and rows on their way (no blocks: nobody).
struct Taken { Team team = {}; int blocks = 0, stages = 0; };
// The blocks (or clusters of so many) that a device has at once, where `blocks` stand on a multiprocessor.
constexpr i64 resident(int arch, int blocks, i64 cluster) {
    if (cluster == 1) return i64(processors(arch)) * blocks;
    const i64 parts = processors(arch) / PART, there = parts * (PART / cluster) - (cluster > 2);
    const i64 found = (there > 1 ? there : 1) * blocks - (cluster == 4 && blocks % 2 != 0);
    return found > 1 ? found : 1;
}

}  // namespace host
}  // namespace
#endif
