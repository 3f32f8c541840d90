// How rows that follow one another are launched, by the table of rounds: as kgen's runtime does it (kgen/runtime/rounds.py).
#pragma once
#include "kgen_resident.cuh"

#ifndef __CUDACC_RTC__
namespace {
namespace host {

// What is known of a pass that adds up columns: its rows, the operands that move along with these, as bits, and the 32-bit words of an
// element's sums.
struct SumsOf {
    Facts rows;
    u64 moving;
    int words;
    bool dear;  // whether an element takes many instructions

    constexpr int steps() const { return rows.readings > 0 ? 2 * rows.long_readings : 0; }
    constexpr int sums() const { return words > 3 ? words / 2 : 1; }
    // The bytes of a kernel's own shared memory at most: a cluster's results of one row are read while those of the next arrive; operands
    // that do not run along a row may have one value of 8 bytes for each warp and each of four rows on their way.
    constexpr int declared(const Team& t) const {
        int own = rows.declared(wider(t.most, t.threads), t.team, t.across, t.cluster > 0);
        for (int k = 0; k < rows.operands; k++) own += rows.bytes[k] > 0 ? 0 : wider(t.most, t.threads);
        return t.cluster > 0 ? own + rows.declared(t.threads, 1, false, true) : own;
    }
    // The shared memory in which a block's sums wait for those of more rows, beside `shared` of its rows: none where registers do
    // (kgen_rounds.cuh), or where there is none.
    constexpr int waiting(const Taken& found, int vec, i64 shared, int arch) const {
        const Team& t = found.team;
        const int threads = wider(t.most, t.threads), together = threads * found.blocks, registers = together <= 256 ? 255 : 65536 / together;
        bool dear = false;
        for (int k = 0; k < rows.operands; k++) dear = dear || rows.bytes[k] > 4;
        const int sums = t.vectors * vec * (dear ? words : words / 2), room = 4 * threads * sums;
        const bool fits = !t.across && found.blocks * (shared + room + declared(t)) <= limits(arch).shared;
        return fits && 2 * sums + 48 > registers ? room : 0;
    }
    // The shared memory for a vector of the rows on their way: of one stage there is room for two rows of one operand.
    constexpr int each(int stages, int vec) const {
        int widest = 0;
        for (int k = 0; k < rows.operands; k++) widest = Facts::has(moving, k) ? wider(widest, rows.bytes[k]) : widest;
        return stages * rows.size(moving, vec) + (stages == 1 ? vec * widest : 0);
    }
    // The team of a rule for a row of `chunks` vectors, each thread having up to `vectors`, if it takes such a row.
    constexpr Taken of(const Round& r, i64 chunks, int vectors, int cluster, int arch) const {
        const i64 some = chunks > 1 ? chunks : 1;
        if (chunks > r.longest || (r.maps && rows.readings > 0) || (r.dear && !dear)) return {};
        if (r.where == ACROSS) return {{r.threads, r.team, vectors, 3, chunks <= r.team * vectors ? 0 : r.team * vectors, true}, r.blocks};
        if (r.where == LANES) {
            if (chunks > r.team * vectors) return {};
            const int lanes = chunks <= r.team ? power(some) : r.team;
            return {{r.threads, lanes, int(up(some, lanes)), 3}, r.blocks};
        }
        if (r.where == BLOCK) {
            if (chunks > r.threads * vectors) return {};
            const i64 warps = up(chunks, 32 * vectors);
            const int needed = 32 * int(warps < 2 ? 2 : warps), most = power(needed);
            return {{needed, 0, vectors, 3, 0, false, 0, most}, wider(1, r.blocks * r.threads / most)};
        }
        if (r.where == CLUSTER) {
            const i64 least = up(chunks, r.threads * vectors), two = least < 2 ? 2 : least;
            if (two > cluster) return {};
            i64 count = two;  // or more, where that leaves fewer multiprocessors idle by a tenth
            for (i64 more = two; more <= cluster; more++) {
                if (more * resident(arch, r.blocks, more) > count * resident(arch, r.blocks, count)) count = more;
            }
            if (10 * count * resident(arch, r.blocks, count) < 11 * two * resident(arch, r.blocks, two)) count = two;
            const i64 span = up(chunks, 32 * count) * 32;
            return {{r.threads, r.threads, vectors, 3, span, false, int(up(chunks, span))}, r.blocks};
        }
        return {{r.threads, r.team, vectors, 3, r.team * vectors}, r.blocks};
    }
    // The vectors of a thread by a rule: as many as it says, or as there is room for the sums of.
    constexpr int vectors_of(const Round& r, int vec) const {
        const int wanted = wider(1, r.elements / vec), most = wider(1, PARTIALS / (sums() * vec));
        return wanted < most ? wanted : most;
    }
    // The first that takes a row and that a device has room for: as many blocks, then as many rows, as there is memory. `moved` is the
    // bytes of a vector of all that moves.
    constexpr Taken take(i64 chunks, int vec, int moved, bool across, int arch) const {
        const Limits device = limits(arch);
        const int cluster = rows.readings > 0 && rows.readings <= MOST_READINGS / 2 ? device.cluster : 0;
        const RoundRules all = rounds(across, vec > 4, sums() > 1);
        for (int i = 0; i < all.count; i++) {
            const Round& r = all.at[i];
            Taken found = of(r, chunks, vectors_of(r, vec), cluster, arch);
            if (found.blocks == 0 || r.least * vec > moved) continue;
            const Team& t = found.team;
            const i64 taken = i64(wider(t.most, t.threads)) * t.vectors, row = taken * moved, bytes = row > 1 ? row : 1;
            const i64 room = (MAX_SHARED < device.shared ? MAX_SHARED : device.shared) - declared(t);
            if (r.stages == 1) {
                if (taken * each(1, vec) + declared(t) > device.shared || declared(t) > MAX_STATIC) continue;
                found.blocks = found.stages = 1;
                return found;
            }
            if (2 * bytes > room || declared(t) > MAX_STATIC) continue;
            const i64 blocks = room / (r.stages * bytes);
            if (blocks < found.blocks) found.blocks = wider(1, int(blocks));
            const i64 stages = room / (found.blocks * bytes);
            found.stages = wider(2, stages < r.stages ? int(stages) : r.stages);
            return found;
        }
        return {};
    }
};

// Whether a kernel is another one but for its registers and the rows on their way; those for any rows are for blocks of fewer threads too.
constexpr bool same(const Built& a, const Built& b) {
    const bool serves = a.threads == b.threads || (a.general && a.team == 0 && a.threads > b.threads);
    return serves && a.team == b.team && a.vectors == b.vectors && a.keep == b.keep && a.across == b.across && a.segments == b.segments &&
           a.cluster == b.cluster && a.general == b.general && a.vec == b.vec && a.step == b.step;
}
// The kernels of such a pass for the architectures of the file: those that rows of some lengths take, of which each shape takes one.
template <int STEPS> struct RoundKernels {
    Built at[256 + 32 * STEPS] = {};
    int count = 0;

    constexpr explicit RoundKernels(const SumsOf& s) {
        const Facts& f = s.rows;
        for (int general = 0; general < 2; general++) {
            for (int vec = general ? f.most_vec() : f.vec(); vec > 0; vec = general ? vec / 2 : 0) {
                if (general || f.wide != 0) add_all(s, vec, false, general);
            }
            add({FINISH, 1, 0, 1, 0, false, false, false, general == 1, 1, -1, -1, false});
        }
        add_all(s, 1, true, true);
    }
    constexpr void add_all(const SumsOf& s, int vec, bool across, bool general) {
        const int moved = s.rows.size(s.moving, vec);
        for (int a = 0; a < int(sizeof(ARCHS) / sizeof(ARCHS[0])); a++) {
            const int arch = ARCHS[a];
            bool known = false, split = false;  // whether the one before it is alike; rows as long as those that launches share go all so
            const Limits own = limits(arch / 10), before = limits(ARCHS[a > 0 ? a - 1 : 0] / 10);
            known = a > 0 && own.shared == before.shared && own.cluster == before.cluster;
            const auto visit = [&](i64 chunks) {
                const Taken found = s.take(chunks, vec, moved, across, arch / 10);
                const Team& t = found.team;
                const bool cluster = t.cluster > 0;
                split = t.span > 0 && !cluster;
                if (found.blocks == 0) return;
                Built b = {wider(t.most, t.threads), found.blocks, t.team, t.vectors, 3, across, split, cluster, general, vec, -1, 0, false};
                b.stages = found.stages;
                if (split) b.step = STEPS;
                add(b);
                b.keep = b.stages = 0;
                for (b.step = 0; split && b.step < STEPS; b.step++) add(b);
            };
            for (i64 chunks = 1; !known && !split && chunks < ANY / 2; chunks += chunks < 32 || chunks >= 512 ? chunks : 32) visit(chunks);
            const RoundRules all = rounds(across, vec > 4, s.sums() > 1);  // and where one of them ends, or has other blocks
            for (int i = 0; !known && i < all.count; i++) {
                const Round& r = all.at[i];
                const i64 each = s.vectors_of(r, vec), clusters = r.where == CLUSTER && own.cluster > 0 ? own.cluster : 1;
                for (i64 more = 0; more < 2; more++) {
                    if (r.longest < ANY / 2) visit(r.longest + more);
                    for (i64 reach = clusters * r.threads * each; reach >= 32 * each; reach /= 2) visit(reach + more);
                }
            }
        }
    }
    // Add a kernel if it is not there: of as many registers as the least demanding has, or, for blocks of several sizes, exactly as many.
    constexpr void add(const Built& b) {
        for (int k = 0; k < count; k++) {
            Built& a = at[k];
            const bool alike = a.threads == b.threads || a.threads * a.blocks == b.threads * b.blocks;
            if (a.stages != b.stages || !alike || !(same(a, b) || same(b, a))) continue;
            if (b.threads > a.threads || (b.threads == a.threads && b.blocks < a.blocks)) a = b;
            return;
        }
        at[count++] = b;
    }
};

// The threads of the last launch that add up a column.
inline int lanes_of(i64 groups) {
    int lanes = 1;
    while (lanes < COLUMN_LANES && 8 * lanes < groups) lanes *= 2;
    return lanes;
}
constexpr int bits(i64 n) {
    int found = 0;
    while (n >> found) found++;
    return found;
}
// The additions that a column's value passes through.
inline i64 depth(i64 rounds, i64 few, i64 teams, i64 groups) {
    const i64 lanes = lanes_of(groups), each = up(groups, lanes), sixteens = each / 16;
    const i64 own = (rounds < few ? rounds : few) + up(rounds, few) + bits(teams - 1);
    return own + (each < 16 ? each : 16) + (sixteens < 16 ? sixteens : 16) + each / 256 + bits(lanes) - 1;
}

// How they are walked: as `plan` in kgen/runtime/rounds.py.
template <int K> struct RoundsPlan : RowDims<K> {
    using Base = RowDims<K>;
    using Base::row, Base::inner, Base::f, Base::vec, Base::wide, Base::across, Base::segments, Base::span;
    bool general = true, served = true;
    const Built* kernels;
    int count, launches = 0, readings = 0;
    Built walk = {};  // of a row's readings
    i64 work = 0, columns = 0, every = 0, groups = 0, few = 1, room = 0, wanted = 0;
    Launch main = {0, 0, 0}, last = {0, 0, FINISH};

    // `arch` is the device's: 90 for sm_90.
    template <typename P> RoundsPlan(P, int dims, int outer, const i64* sizes, const RowOperand (&given)[K], int arch)
        : Base(dims, outer, sizes, given, P::FACTS, true), kernels(P::KERNELS.at), count(P::KERNELS.count) {
        if (row.count == 0 && inner.count == 0) return;
        if (row.count == 0) row = {1, 0, {1}, {}};  // a kernel divides by sizes
        attempt<P>(arch);
        const int built = built_for(arch);  // a later device takes the file's own steps where it would have others, and has room for them
        const Limits own = limits(arch), asked = limits(built);
        if (!served && built > 0 && asked.shared <= own.shared && asked.cluster <= own.cluster) attempt<P>(built);
    }
    template <typename P> void attempt(int arch) {
        Taken found = P::SUMS.take(inner.count / vec, vec, f.size(P::SUMS.moving, vec), across, arch);
        if (found.blocks == 0) {
            vec = 1, wide = 0;
            found = P::SUMS.take(inner.count, vec, f.size(P::SUMS.moving, vec), across, arch);
        }
        served = found.blocks > 0;
        if (served) plan<P>(found, arch);
    }
    template <typename P> void plan(const Taken& found, int arch) {
        const SumsOf& s = P::SUMS;
        const Team& t = found.team;
        const i64 rows = row.count, chunks = inner.count / vec;
        const bool cluster = t.cluster > 0, split = t.span > 0 && !cluster;
        int threads = t.threads;
        if (across) {  // no more teams than rows, for each takes work space
            const int most = t.team * power(rows < threads ? rows : threads);
            threads = most > threads ? threads : wider(32, most);
        }
        const i64 teams = threads / (t.team > 0 ? t.team : threads);
        segments = t.span > 0 && chunks > 0 ? up(chunks, t.span) : 1;
        span = t.span > 0 ? t.span : chunks > 1 ? chunks : 1;
        wanted = up(rows, teams);
        i64 at_once = resident(arch, found.blocks, cluster ? segments : 1);
        if (split) at_once = at_once > segments ? at_once / segments : 1;
        const i64 again = up(wanted, at_once * MOST_ROUNDS), most = at_once * (again > 1 ? again : 1);
        groups = wanted < most ? wanted : most;
        every = groups * teams;
        general = !this->full() || !this->flat(rows + 8 * every, segments);

        Built b = {wider(t.most, t.threads), 0, t.team, t.vectors, 3, across, split, cluster, general, vec, -1, found.stages, false};
        if (split) b.step = s.steps();
        main = {find(b), groups * segments, threads, cluster ? int(segments) : 1};
        served = main.kernel >= 0;
        if (!served) return;
        main.shared = (across ? threads : b.threads) * t.vectors * s.each(kernels[main.kernel].stages, vec);
        b.keep = b.stages = 0;
        walk = b;
        readings = split ? s.steps() : 0;
        if (readings > 0) columns = up(i64(f.words) * rows * (segments + f.long_readings), 4) * 4;
        const i64 side = s.words < 3 && inner.count % 4 == 0 ? 4 / s.words : 1;  // elements of a thread, as kgen_rounds.cuh has it
        const i64 each = side * FINISH / lanes_of(groups), rounds = up(rows, every > 1 ? every : 1);
        last = {find({FINISH, 0, 0, 1, 0, false, false, false, general, 1, -1, -1, false}), up(inner.count, each), FINISH};
        launches = readings + (groups > 0) + (inner.count > 0 && !(split && every == 1));
        for (i64 n = 1; n <= 64; n++) few = depth(rounds, n, teams, groups) <= 64 + bits(rows) ? n : few;
        if (rounds > few && groups > 0) room = s.waiting(found, vec, main.shared, arch);
        main.shared += int(room);
        work = 4 * (columns + s.words * inner.count * every);
    }
    Launch launch(int k) const {
        Built b = walk;
        b.step = k;
        if (k < readings) return {find(b), k % 2 ? wanted : wanted * segments, main.threads};
        return k == readings && groups > 0 ? main : last;
    }
    // The number of a kernel with as many rows on their way, or the most below; -1 where there is none.
    int find(const Built& b) const {
        int found = -1;
        for (int k = 0; k < count; k++) {
            if (same(kernels[k], b) && kernels[k].stages <= b.stages && (found < 0 || kernels[k].stages > kernels[found].stages)) found = k;
        }
        return found;
    }
    template <typename L> void fill(L& layout, void* memory) const {
        Base::fill(layout.rows, memory);
        layout.columns = u64(columns);
        layout.every = u64(every);
        layout.groups = u64(groups);
        layout.few = u64(few);
        layout.room = u64(room);
    }
};

// A pass that adds up columns, by the words of their sums, what moves along with rows, whether elements are dear, and these rows.
template <int COLUMNS, u64 MOVING, bool DEAR, typename Rows> struct RoundsPass {
    static constexpr int OPERANDS = Rows::OPERANDS, GATHERS = Rows::GATHERS;
    static constexpr u64 WIDE = Rows::WIDE;
    static constexpr Facts FACTS = Rows::FACTS;
    static constexpr SumsOf SUMS = {FACTS, MOVING, COLUMNS, DEAR};
    static constexpr RoundKernels<SUMS.steps()> KERNELS = RoundKernels<SUMS.steps()>(SUMS);
    static constexpr bool EDGES = false;
    using Plan = RoundsPlan<OPERANDS>;
    template <typename W, int STAGES> using Walking = Rounds<W, STAGES>;
};

}  // namespace host
}  // namespace
#endif
