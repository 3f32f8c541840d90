// Passes over rows: how they are walked, and what launches them.
#pragma once
#include "kgen_walk.cuh"
#include "kgen_plan.cuh"

#ifndef __CUDACC_RTC__
namespace {
namespace host {

template <typename W> struct Way { using Walk = W; };

// How kernel number I of a pass walks: rows without gaps, or any dims, of which the rows say what moves in vectors.
template <typename P, int I> struct Walked {
    static constexpr Built B = P::KERNELS.at[I];
    static constexpr int RANK = B.general ? 8 : 1;
    static constexpr bool VECTORS = B.vec > 1, EDGES = VECTORS && B.team != 1 && B.team != 2;  // of four vectors and more
    using Type = Walk<B.threads, B.blocks, B.team, B.across, B.vectors, B.vec, EDGES, B.general ? GIVEN : VECTORS ? P::WIDE : 0, P::FACTS.main(),
                        B.segments && !B.cluster, B.keep, B.cluster, B.step,
                        RANK, RANK, P::OPERANDS, P::GATHERS, std::conditional_t<B.general, u64, unsigned>>;
};

// The kernel of a pass with a number, of those for any dims or of the others; `kernel(way)` gives the kernel for a way of walking.
template <typename P, bool GENERAL, typename F, int I, typename Kernel> F numbered(Kernel kernel) {
    if constexpr (P::KERNELS.at[I].general == GENERAL) return kernel(Way<typename Walked<P, I>::Type>());
    else return nullptr;
}
template <typename P, bool GENERAL, typename F, typename Kernel, int... I>
F find_kernel(int number, Kernel kernel, std::integer_sequence<int, I...>) {
    const F all[] = {numbered<P, GENERAL, F, I>(kernel)...};
    return all[number];
}
template <typename P, bool GENERAL> constexpr int first_kernel() {
    int k = 0;
    while (P::KERNELS.at[k].general != GENERAL) k++;
    return k;
}

template <typename P, bool GENERAL, typename Kernel, typename... A>
cudaError_t launch_rows(const RowPlan<P::OPERANDS>& plan, cudaStream_t stream, Kernel kernel, A... arguments) {
    using First = typename Walked<P, first_kernel<P, GENERAL>()>::Type;
    const Launch& l = plan.launch;
    typename First::Layout rows = {};
    rows.rows = typename First::Place(plan.row.count);
    rows.n = typename First::Place(plan.inner.count);
    rows.segments = typename First::Place(l.segments);
    rows.span = typename First::Place(l.span);
    rows.misaligned = typename First::Place(l.misaligned);
    rows.main = typename First::Place(plan.main < 0 ? 0 : plan.main);
    rows.wide = plan.wide;
    rows.slot = P::WORDS;
    plan.row.put(rows.row_size, rows.row_stride);
    plan.inner.put(rows.size, rows.stride);
    for (int k = 0, g = 0; k < P::OPERANDS; k++) {
        if (plan.operands[k].gather_size == 0) continue;
        rows.gather_size[g] = plan.operands[k].gather_size;
        rows.gather_stride[g++] = plan.operands[k].gather_stride;
    }
    using F = decltype(kernel(Way<First>()));
    const auto number = [&](int k) { return find_kernel<P, GENERAL, F>(k, kernel, std::make_integer_sequence<int, P::KERNELS.count>()); };
    if (!l.split) return start(number(l.kernel), rows, l.blocks, l.threads, l.cluster, l.shared, stream, arguments...);
    // A launch for the segments of each reading, and one to combine their results.
    if (l.blocks > INT_MAX) return cudaErrorInvalidValue;
    const size_t bytes = size_t(plan.row.count * (l.segments + P::LONG)) * P::WORDS * 4;
    cudaError_t error = cudaMallocAsync(reinterpret_cast<void**>(&rows.work), bytes, stream);
    for (int step = 0; step < P::STEPS && error == cudaSuccess; step++) {
        error = start(number(l.kernel + 1 + step), rows, step % 2 ? l.groups : l.blocks, l.threads, 1, 0, stream, arguments...);
    }
    if (rows.work) cudaFreeAsync(rows.work, stream);
    return error;
}

inline cudaError_t device_arch(int& arch) {
    int device = 0, major = 0, minor = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    arch = 10 * major + minor;
    return error;
}

// Launch a pass on rows of `rank` dims, of which `outer` are the rows'; `kernel(way)` gives the kernel for a way of walking.
// cudaErrorInvalidValue where more than 8 dims of either remain once those that can be are merged.
template <typename P, typename Kernel, typename... A>
cudaError_t run_rows(P, int rank, int outer, const i64* size, const RowOperand (&operands)[P::OPERANDS], cudaStream_t stream, Kernel kernel,
                     A... arguments) {
    if (rank < 0 || rank > 64) return cudaErrorInvalidValue;
    int arch = 0;
    const cudaError_t error = device_arch(arch);
    if (error != cudaSuccess) return error;
    const RowPlan<P::OPERANDS> plan(rank, outer, size, operands, P::FACTS, P::KERNELS, arch);
    if (plan.row.count == 0) return cudaSuccess;
    if (plan.row.rank > 8 || plan.inner.rank > 8 || plan.launch.kernel < 0) return cudaErrorInvalidValue;
    if (plan.launch.general) return launch_rows<P, true>(plan, stream, kernel, arguments...);
    return launch_rows<P, false>(plan, stream, kernel, arguments...);
}

}  // namespace host
}  // namespace
#endif
