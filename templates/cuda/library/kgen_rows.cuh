// Passes over rows: how they are walked, and what launches them.
#pragma once
#include "kgen_walk.cuh"
#include "kgen_plan.cuh"

#ifndef __CUDACC_RTC__
namespace {
namespace host {

template <typename W> struct Way { using Walk = W; };

// How kernel number I of a pass walks: rows without gaps, or any dims, of which the rows say what moves in vectors.
// What moves in vectors of rows that follow one another and begin within one.
template <typename P> constexpr auto rowed(int) -> decltype(+P::ROWED) { return P::ROWED; }
template <typename P> constexpr u64 rowed(long) { return P::WIDE; }
template <typename P, int I> struct Walked {
    static constexpr Built B = P::KERNELS.at[I];
    static constexpr int RANK = B.general ? 8 : 1;
    static constexpr bool VECTORS = B.vec > 1, EDGES = B.edges || (P::EDGES && VECTORS && B.team != 1 && B.team != 2);  // of four vectors and more
    static constexpr u64 WIDE = B.general ? GIVEN : !VECTORS ? 0 : B.edges ? rowed<P>(0) : P::WIDE;
    using Under = Walk<B.threads, B.blocks, B.team, B.across, B.vectors, B.vec, EDGES, WIDE, P::FACTS.main(), B.segments && !B.cluster, B.keep,
                       B.cluster, B.step, RANK, RANK, P::OPERANDS, P::GATHERS, std::conditional_t<B.general, u64, unsigned>>;
    using Type = typename P::template Walking<Under, B.stages>;
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

// Start the launches of a plan, on memory to work in where they need some.
template <typename P, bool GENERAL, typename Kernel, typename... A>
cudaError_t launch_rows(const typename P::Plan& plan, cudaStream_t stream, Kernel kernel, A... arguments) {
    using First = typename Walked<P, first_kernel<P, GENERAL>()>::Type;
    using F = decltype(kernel(Way<First>()));
    typename First::Layout layout = {};
    void* work = nullptr;
    cudaError_t error = cudaSuccess;
    if (plan.work > 0) error = cudaMallocAsync(&work, size_t(plan.work), stream);
    plan.fill(layout, work);
    for (int k = 0; k < plan.launches && error == cudaSuccess; k++) {
        const Launch l = plan.launch(k);
        const F found = find_kernel<P, GENERAL, F>(l.kernel, kernel, std::make_integer_sequence<int, P::KERNELS.count>());
        error = start(found, layout, l.blocks, l.threads, l.cluster, l.shared, k > 0, stream, arguments...);
    }
    if (work) cudaFreeAsync(work, stream);
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
    const typename P::Plan plan(P(), rank, outer, size, operands, arch);
    if (plan.row.rank > 8 || plan.inner.rank > 8 || !plan.served) return cudaErrorInvalidValue;
    if (plan.general) return launch_rows<P, true>(plan, stream, kernel, arguments...);
    return launch_rows<P, false>(plan, stream, kernel, arguments...);
}

}  // namespace host
}  // namespace
#endif
