// Maps over lists of tensors: what one launch has of each tensor, and how a block finds its own.
#pragma once
#include "kgen_maps.cuh"

// COUNT tensors of K operands, P of which have memory. It is an argument of the kernel, so that no launch reads what another one wrote.
template <int COUNT, int P, int RANK, int K, typename Index> struct List {
    void* pointer[P][COUNT];
    Layout<RANK, K, Index> layout[COUNT];
    unsigned first[COUNT];     // the first block of each
    unsigned short hint[130];  // which tensor every 2^shift-th block belongs to, and the last one
    unsigned short shift;

    // The tensor of a block: the last one that begins no later.
    __device__ int find(unsigned block) const {
        int low = hint[block >> shift], high = hint[(block >> shift) + 1];
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if (first[middle] <= block) low = middle;
            else high = middle - 1;
        }
        return low;
    }
};
