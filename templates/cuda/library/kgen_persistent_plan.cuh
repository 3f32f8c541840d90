// How rows that share parameters of columns follow one another, by the table of rounds: as kgen's runtime does it (kgen/runtime/persistent.py).
#pragma once
#include "kgen_resident.cuh"

#ifndef __CUDACC_RTC__
#include <atomic>

namespace {
namespace host {

// What is known of such a pass: its rows, and the operands that move along with these, as bits; all else that is read all rows share; whether
// it asks where an element lies.
struct Following {
    Facts rows;
    u64 moving;
    bool places;

    constexpr u64 shared() const { return rows.wide & rows.read & ~moving; }
    // The bytes of a kernel's own shared memory at most: a cluster's results of one row are read while those of the next arrive; operands that
    // do not run along a row may have one value of 8 bytes for each warp and each of four rows on their way.
    constexpr int declared(int threads) const {
        int own = rows.declared(threads, threads, false, true) + rows.declared(threads, 1, false, true);
        for (int k = 0; k < rows.operands; k++) own += rows.bytes[k] > 0 ? 0 : threads;
        return own;
    }
    // What moves in vectors of rows that begin within one.
    constexpr u64 rowed() const { return rows.wide & ~shared(); }
    // The shared memory of rows on their way: beside whole vectors those in which a row's first and last elements lie, one for each; of one
    // stage there is room for two rows of one operand.
    constexpr i64 all(int stages, int threads, int vectors, int vec, bool edges) const {
        int widest = 0;
        for (int k = 0; k < rows.operands; k++) widest = Facts::has(moving, k) ? wider(widest, rows.bytes[k]) : widest;
        return i64(threads * vectors + (edges ? 2 * vec : 0)) * (stages * rows.size(moving, vec) + (stages == 1 ? vec * widest : 0));
    }
    // The clusters of a rule on a device, of any rows: blocks on a multiprocessor and rows on their way; none where it has no room for two.
    constexpr Taken of(const Round& r, int vec, int arch, bool edges) const {
        const int vectors = wider(1, r.elements / vec), own = declared(r.threads);
        const Limits device = limits(arch);
        if (r.where == NONE || rows.size(shared(), vec) * vectors > 4 * r.parameters || own > MAX_STATIC || device.cluster < 2) return {};
        const i64 one = all(2, r.threads, vectors, vec, edges) / 2, every = all(r.stages, r.threads, vectors, vec, edges), most = device.shared / (every + own);
        const i64 blocks = most < 1 ? 1 : most < r.blocks ? most : r.blocks, stages = (device.shared / blocks - own) / one;
        if (stages < (r.stages > 1 ? 2 : 1) || (r.stages == 1 && every + own > device.shared)) return {};
        const int keep = 3 + r.once + 2 * r.every, cluster = r.where == CLUSTER ? 2 : 0;  // or more blocks
        return {{r.threads, r.threads, vectors, keep, 0, false, cluster}, int(blocks), stages < r.stages ? int(stages) : r.stages};
    }
    // Whether a block may have a row by itself.
    constexpr bool alone() const { return rows.count(moving) == 1 && !places; }
    constexpr RoundRules rules(int vec, bool edges) const {
        const int same = rows.count(shared());
        if (rows.count(moving) == 0 || (same == 0 && (edges || rows.words * rows.readings > ALONE_WORDS))) return RoundRules{nullptr, 0};
        if (same == 0) return persistent_alone(vec > 4, rows.count(moving) > 2);
        return edges ? persistent_edges(vec > 4, same > 1) : persistent(vec > 4, same > 1);
    }
    // The vectors of a row of `chunks` that a block of a cluster takes: of a cluster of at least so many blocks, and of up to a quarter more where
    // clusters of so many leave fewer multiprocessors idle.
    static i64 span(i64 chunks, i64 least, int blocks, int arch) {
        i64 found = 0, most = 0;
        for (i64 count = least; count == least || (count <= least * 5 / 4 && count <= limits(arch).cluster); count++) {
            const i64 span = up(chunks, 32 * count) * 32, cluster = up(chunks, span), busy = cluster * resident(arch, blocks, cluster);
            if (busy > most) found = span, most = busy;
        }
        return found;
    }
    // Who takes a row of `chunks` vectors.
    Taken take(i64 chunks, int vec, int arch, bool edges) const {
        const RoundRules all = rules(vec, edges);
        for (int i = 0; i < all.count; i++) {
            if (chunks > all.at[i].longest || (all.at[i].where == BLOCK && !alone())) continue;
            Taken found = of(all.at[i], vec, arch, edges);
            if (all.at[i].where == BLOCK) {
                if (found.blocks > 0 && chunks <= found.team.threads * found.team.vectors) return found;
                continue;
            }
            if (found.blocks == 0) return {};
            const i64 least = up(chunks, found.team.threads * found.team.vectors);
            found.team.span = span(chunks, least < 2 ? 2 : least, found.blocks, arch);
            found.team.cluster = int(up(chunks, found.team.span));
            return found.team.cluster >= 2 && found.team.cluster <= limits(arch).cluster ? found : Taken{};
        }
        return {};
    }
};

// The kernels of such a pass for the architectures of the file.
struct FollowingKernels {
    Built at[64] = {};
    int count = 0;

    constexpr explicit FollowingKernels(const Following& s) {
        const int vec = s.rows.vec();
        for (int arch : ARCHS) {
            for (int edges = 0; edges < 2; edges++) add(s, vec, arch, edges == 1);
        }
    }
    constexpr void add(const Following& s, int vec, int arch, bool edges) {
        const RoundRules all = s.rules(vec, edges);
        for (int i = 0; i < all.count && s.rows.wide != 0 && vec > 1; i++) {
            if (all.at[i].where == BLOCK && !s.alone()) continue;
            const Taken found = s.of(all.at[i], vec, arch / 10, edges);
            const Team& t = found.team;
            for (int general = 0; general < 2 && found.blocks > 0; general++) {
                const Built b = {t.threads, found.blocks, t.team, t.vectors, t.keep, false, false, t.cluster > 0, general == 1, vec, -1, found.stages, edges};
                if (find(b) < 0) at[count++] = b;
            }
        }
    }
    constexpr int find(const Built& b) const {
        for (int k = 0; k < count; k++) {
            const Built& a = at[k];
            const bool alike = a.general == b.general && a.edges == b.edges && a.keep == b.keep && a.cluster == b.cluster;
            if (alike && a.threads == b.threads && a.blocks == b.blocks && a.vectors == b.vectors && a.stages == b.stages) return k;
        }
        return -1;
    }
};

// How they are walked: as `plan` in kgen/runtime/persistent.py.
template <int K> struct FollowingPlan : RowDims<K> {
    using Base = RowDims<K>;
    using Base::row, Base::inner, Base::f, Base::vec, Base::edges, Base::wide, Base::segments, Base::span;
    bool general = false, served = false;
    int launches = 1;
    i64 work = 0, groups = 0;
    Launch only = {-1, 0, 0};

    // `arch` is the device's: 90 for sm_90.
    template <typename P> FollowingPlan(P, int dims, int outer, const i64* sizes, const RowOperand (&given)[K], int arch)
        : Base(dims, outer, sizes, given, P::FACTS, false) {
        const Following& s = P::FOLLOWING;
        bool whole = row.count > 0 && vec > 1 && vec == f.vec() && inner.rank == 1 && (!edges || row.rank == 1);
        for (int k = 0; k < K; k++) {
            if (!this->memory(k)) continue;
            whole = whole && (edges ? this->step(k) == 1 : Facts::has(wide, k));
        }
        if (!whole) return;
        const Taken found = s.take(inner.count / vec, vec, arch, edges);
        const Team& t = found.team;
        if (found.blocks == 0) return;
        segments = t.cluster > 0 ? t.cluster : 1, span = t.cluster > 0 ? t.span : t.threads * t.vectors;
        i64 there = resident(arch, found.blocks, segments);
        if (edges && 8 * (there % vec) > there) return;  // each takes rows that begin alike, and who is left over takes none
        there -= edges ? there % vec : 0;
        groups = row.count < there ? row.count : there;
        const u64 moves = edges ? s.rowed() : f.wide;
        general = (wide & moves) != moves || !this->flat(row.count + 8 * groups, segments);
        only.kernel = P::KERNELS.find({t.threads, found.blocks, t.team, t.vectors, t.keep, false, false, t.cluster > 0, general, vec, -1, found.stages, edges});
        served = only.kernel >= 0;
        only.blocks = groups * segments;
        only.threads = t.threads;
        only.cluster = int(segments);
        only.shared = int(s.all(found.stages, t.threads, t.vectors, vec, edges));
    }
    Launch launch(int) const { return only; }
    // The same on a device that has room for no more than so many clusters at once, by its own account: of others the last would wait for all
    // before them. Who takes a row decides nothing else. As it was where that is too few for rows that begin alike.
    void fit(i64 there) {
        there -= edges ? there % vec : 0;
        if (there < 1 || there >= groups) return;
        groups = there;
        only.blocks = groups * segments;
    }
    template <typename L> void fill(L& layout, void* memory) const {
        Base::fill(layout.rows, memory);
        layout.columns = 0;
        layout.every = layout.groups = u64(groups);
        layout.few = 1;
    }
};

// A pass whose rows may follow one another, by what moves along with rows, and the same pass of rows that do not; whether it asks where an
// element lies.
template <u64 MOVING, typename Rows, bool PLACES = false> struct PersistentPass {
    static constexpr int OPERANDS = Rows::OPERANDS, GATHERS = Rows::GATHERS;
    static constexpr u64 WIDE = Rows::WIDE;
    static constexpr Facts FACTS = Rows::FACTS;
    static constexpr Following FOLLOWING = {FACTS, MOVING, PLACES};
    static constexpr u64 ROWED = FOLLOWING.rowed();
    static constexpr FollowingKernels KERNELS = FollowingKernels(FOLLOWING);
    static constexpr bool EDGES = false;
    using Plan = FollowingPlan<OPERANDS>;
    template <typename W, int STAGES> using Walking = Rounds<W, STAGES>;
};
// How many clusters of a launch the device has room for at once, which differs from chip to chip: asked once of each of some devices. 0
// where it does not say.
template <typename P, bool GENERAL, typename Kernel> i64 room(const Launch& l, Kernel kernel) {
    constexpr int DEVICES = 16, CLUSTERS = 17;
    static std::atomic<int> known[DEVICES][P::KERNELS.count][CLUSTERS];
    int device = 0, found = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return 0;
    const bool keeps = device < DEVICES && l.cluster < CLUSTERS;
    if (keeps) found = known[device][l.kernel][l.cluster].load(std::memory_order_relaxed);
    if (found > 0) return found;
    using F = decltype(kernel(Way<typename Walked<P, first_kernel<P, GENERAL>()>::Type>()));
    const F one = find_kernel<P, GENERAL, F>(l.kernel, kernel, std::make_integer_sequence<int, P::KERNELS.count>());
    Start asked(one, l.cluster, l.threads, l.cluster, l.shared, false, nullptr);
    asked.config.attrs = asked.attributes, asked.config.numAttrs = 1;  // also where a block is a cluster of one
    if (asked.error != cudaSuccess || cudaOccupancyMaxActiveClusters(&found, one, &asked.config) != cudaSuccess) return 0;
    if (keeps) known[device][l.kernel][l.cluster].store(found, std::memory_order_relaxed);
    return found;
}
// Launch such a pass: rows one after the other where they are long enough for it and whole vectors side by side.
template <u64 MOVING, typename Rows, bool PLACES, typename Kernel, typename... A>
cudaError_t run_rows(PersistentPass<MOVING, Rows, PLACES>, int rank, int outer, const i64* size, const RowOperand (&operands)[Rows::OPERANDS],
                     cudaStream_t stream, Kernel kernel, A... arguments) {
    using P = PersistentPass<MOVING, Rows, PLACES>;
    if (rank < 0 || rank > 64) return cudaErrorInvalidValue;
    if constexpr (P::KERNELS.count > 0) {
        int arch = 0;
        const cudaError_t error = device_arch(arch);
        if (error != cudaSuccess) return error;
        typename P::Plan plan(P(), rank, outer, size, operands, arch);
        if (plan.served && plan.row.rank <= 8) {
            plan.fit(plan.general ? room<P, true>(plan.only, kernel) : room<P, false>(plan.only, kernel));
            if (plan.general) return launch_rows<P, true>(plan, stream, kernel, arguments...);
            return launch_rows<P, false>(plan, stream, kernel, arguments...);
        }
    }
    return run_rows(Rows(), rank, outer, size, operands, stream, kernel, arguments...);
}

}  // namespace host
}  // namespace
#endif
