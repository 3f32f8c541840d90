// What the host does for any kernel: merge dims, launch. NVRTC's callers do this for themselves.
#pragma once
#include "kgen_numbers.cuh"

#ifndef __CUDACC_RTC__
#include <utility>

namespace {
namespace host {

// Dims of K operands, outermost first; those that can be made into one are merged. Rank at most 64.
template <int K> struct Dims {
    int rank = 0;
    i64 count = 1, size[64], stride[K][64];

    // In the order of operand `main`, or as they are `ordered`; `of(k)` gives the strides of operand k, `one` is that of a single element.
    template <typename Strides> void merge(int dims, const i64* sizes, int main, i64 one, Strides of, bool ordered = false) {
        int r = 0;
        for (int d = 0; d < dims; d++) {
            count *= sizes[d];
            if (sizes[d] == 1) continue;
            int p = r++;
            for (; !ordered && p > 0 && stride[main][p - 1] < of(main)[d]; p--) move(p - 1, p);
            size[p] = sizes[d];
            for (int k = 0; k < K; k++) stride[k][p] = of(k)[d];
        }
        if (r == 0) {  // one element
            size[0] = 1;
            for (int k = 0; k < K; k++) stride[k][0] = one;
        }
        int inner = 0;
        for (int d = 1; d < r; d++) {
            bool merge = true;
            for (int k = 0; k < K; k++) merge = merge && stride[k][inner] == stride[k][d] * size[d];
            if (merge) size[d] *= size[inner];
            else inner++;
            move(d, inner);
        }
        rank = inner + 1;
    }
    void exchange(int d, int e) {
        std::swap(size[d], size[e]);
        for (int k = 0; k < K; k++) std::swap(stride[k][d], stride[k][e]);
    }
    void move(int from, int to) {
        size[to] = size[from];
        for (int k = 0; k < K; k++) stride[k][to] = stride[k][from];
    }
    // Where the last element of operand k lies.
    i64 last(int k) const {
        i64 at = 0;
        for (int d = 0; d < rank; d++) at += (size[d] - 1) * stride[k][d];
        return at;
    }
    // As a kernel takes them, padded by outer dims of size 1.
    template <int RANK, typename Index> void put(Index (&sizes)[RANK], Index (&strides)[K][RANK]) const {
        for (int d = 0, from = rank - RANK; d < RANK; d++, from++) {
            sizes[d] = from < 0 ? 1 : Index(size[from]);
            for (int k = 0; k < K; k++) strides[k][d] = from < 0 ? 0 : Index(stride[k][from]);
        }
    }
};

// What a launch asks for, which the kernel is then allowed; `cluster` blocks (1: none) are a cluster. One that `follows` another, and whose
// kernel waits for it (`dependency_synchronize`), may begin before that has ended; what is built for devices before sm_90 does not wait.
struct Start {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2] = {};
    cudaError_t error = cudaSuccess;

    template <typename F> Start(F kernel, i64 blocks, int threads, int cluster, int shared, bool follows, cudaStream_t stream) {
        config.gridDim = dim3(unsigned(blocks));
        config.blockDim = dim3(unsigned(threads));
        config.dynamicSmemBytes = size_t(shared);
        config.stream = stream;
        attributes[0].id = cudaLaunchAttributeClusterDimension;
        attributes[0].val.clusterDim.x = unsigned(cluster);
        attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
        attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[1].val.programmaticStreamSerializationAllowed = 1;
        cudaFuncAttributes built = {};
        if (follows) error = cudaFuncGetAttributes(&built, kernel);
        config.attrs = cluster > 1 ? attributes : attributes + 1;
        config.numAttrs = unsigned(cluster > 1) + unsigned(built.ptxVersion >= 90);
        if (shared > 0 && error == cudaSuccess) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
        if (cluster > 8 && error == cudaSuccess) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    }
    Start(const Start&) = delete;
};

// Launch a kernel on its layout and what else it takes.
template <typename Layout, typename... P, typename... A>
cudaError_t start(void (*kernel)(Layout, P...), const Layout& layout, i64 blocks, int threads, int cluster, int shared, bool follows,
                  cudaStream_t stream, A... arguments) {
    if (blocks > INT_MAX) return cudaErrorInvalidValue;
    const Start asked(kernel, blocks, threads, cluster, shared, follows, stream);
    return asked.error == cudaSuccess ? cudaLaunchKernelEx(&asked.config, kernel, layout, P(arguments)...) : asked.error;
}

}  // namespace host
}  // namespace
#endif
