// Passes over rows: how they are walked, and what launches them.
#pragma once
#include "kgen_walk.cuh"
#include "kgen_plan.cuh"

#ifndef __CUDACC_RTC__
namespace {
namespace host {

// What is known of a pass, and a pass with its kernels.
template <int GATHERS_, u64 WIDE_, u64 KEPT, u64 READ, bool ROWED, bool ONE_DIM, int READINGS, int LONG, bool STORES, int WORDS, bool SPLITS,
          int... BYTES>
struct Known {
    static constexpr int OPERANDS = sizeof...(BYTES), GATHERS = GATHERS_;
    static constexpr u64 WIDE = WIDE_;
    static constexpr int bytes[] = {BYTES...};
    static constexpr Facts FACTS = {WIDE, KEPT, READ, ROWED, ONE_DIM, READINGS, LONG, STORES, WORDS, SPLITS, bytes, OPERANDS};
};
template <int GATHERS, u64 WIDE, u64 KEPT, u64 READ, bool ROWED, bool ONE_DIM, int READINGS, int LONG, bool STORES, int WORDS, bool SPLITS,
          int... BYTES>
struct Pass : Known<GATHERS, WIDE, KEPT, READ, ROWED, ONE_DIM, READINGS, LONG, STORES, WORDS, SPLITS, BYTES...> {
    using Base = Known<GATHERS, WIDE, KEPT, READ, ROWED, ONE_DIM, READINGS, LONG, STORES, WORDS, SPLITS, BYTES...>;
    static constexpr int STEPS = steps(Base::FACTS);
    static constexpr Kernels<STEPS> KERNELS = Kernels<STEPS>(Base::FACTS);
    static constexpr bool EDGES = true;  // of rows
    using Plan = RowPlan<Base::OPERANDS>;
    template <typename W, int STAGES> using Walking = W;
};
// A pass that makes a value once, which may have OWN bytes beside the operands in OF that stay on the chip, and has their place where it fits
// and nothing else reads them (FREE).
[[maybe_unused]] constexpr Facts with_value(Facts f, u64 of, bool free, int own) {
    f.beside = free && f.size(of, 1) >= own ? 0 : own;
    return f;
}
template <u64 OF, bool FREE, int OWN, typename P> struct LastingPass : P {
    static constexpr Facts FACTS = with_value(P::FACTS, OF, FREE, OWN);
    static constexpr Kernels<P::STEPS> KERNELS = Kernels<P::STEPS>(FACTS);
};
// A pass whose elements take many instructions: of rows that are held and reduced there are other steps for such.
[[maybe_unused]] constexpr Facts with_dear(Facts f) { f.dear = f.holds() && f.readings > 0; return f; }
template <typename P> struct DearPass : P {
    static constexpr Facts FACTS = with_dear(P::FACTS);
    static constexpr Kernels<P::STEPS> KERNELS = Kernels<P::STEPS>(FACTS);
};
// A pass that goes by pieces of rows (kgen_pieces.cuh).
[[maybe_unused]] constexpr Facts in_pieces(Facts f) { f.pieces = true; return f; }
template <typename P> struct PiecesPass : P {
    static constexpr Facts FACTS = in_pieces(P::FACTS);
    static constexpr Kernels<P::STEPS> KERNELS = Kernels<P::STEPS>(FACTS);
};

// A pass over rows that lie side by side, of which a thread may take several of up to LONGEST elements (kgen_teams.cuh).
[[maybe_unused]] constexpr Facts side_by_side(Facts f, i64 longest) { f.abreast = longest; return f; }
template <i64 LONGEST, typename P> struct AbreastPass : P {
    static constexpr Facts FACTS = side_by_side(P::FACTS, LONGEST);
    static constexpr Kernels<P::STEPS> KERNELS = Kernels<P::STEPS>(FACTS);
};

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
                       B.cluster, B.step, RANK, RANK, P::OPERANDS, P::GATHERS, std::conditional_t<B.general, u64, unsigned>, 1, 0,
                       B.abreast>;
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
