// How a pass over rows is launched, by the table of launches: as kgen's runtime does it (kgen/runtime/rows.py).
#pragma once
#include "kgen_host.cuh"
#include "kgen_launches.cuh"
#include "kgen_walk.cuh"

#ifndef __CUDACC_RTC__
namespace {
namespace host {

// The architectures that the file is built for.
#ifdef __CUDA_ARCH_LIST__
constexpr int ARCHS[] = {__CUDA_ARCH_LIST__};
#else
constexpr int ARCHS[] = {800, 900, 1000};
#endif

// An operand of a pass over rows: strides along the rows' dims and then along a row's. No bytes: an index, which has no memory. `rows`
// counts the rows' dims that it is declared with.
struct RowOperand { const void* pointer; const i64* stride; int bytes; bool element; int rows; i64 gather_size = 0, gather_stride = 0; };

// Who takes a row: a team of threads with some vectors each, in one piece or in segments of `span` vectors. KEEP and more: see Walk.
struct Team {
    int threads, team, vectors, keep;
    i64 span = 0;
    bool across = false;
    int cluster = 0, most = 0;  // most: threads of a block that the kernel is built for, where a team is a block of any size
    bool cached = false;        // whether blocks take its segments in all readings in one launch
};

// A kernel of a pass, by the arguments of its Walk, in vectors of `vec`: for rows without gaps whose operands are aligned alike, or
// (`general`) for any.
struct Built {
    int threads, blocks, team, vectors, keep;
    bool across, segments, cluster, general;
    int vec, step, stages;  // stages: of rows that follow one another (kgen_rounds.cuh)
    bool edges;             // whether those begin within a vector
};

constexpr i64 up(i64 n, i64 by) { return (n + by - 1) / by; }
constexpr int power(i64 n) {  // of two, no less than n
    int found = 1;
    while (found < n) found *= 2;
    return found;
}

inline Team cluster_of(const Rule& rule, i64 chunks, bool edges, bool across) {
    const int threads = rule.threads, vectors = rule.vectors, team = across ? rule.team : threads;
    const i64 blocks = up(chunks, team * vectors), span = up(chunks, 32 * (blocks < 2 ? 2 : blocks)) * 32, count = up(chunks, span);
    const int cluster = count < 1024 ? int(count) : 1024;
    if (rule.trims && edges) return {int(up(span, 32 * vectors) * 32), 0, vectors, 2, span, false, cluster, threads};
    return {threads, team, vectors, 2, span, across, cluster, 0};
}

// The team that a rule gives a row of `chunks` vectors.
[[maybe_unused]] inline Team team_of(const Rule& rule, i64 chunks, bool edges, bool across) {
    const int threads = rule.threads, team = rule.team, vectors = rule.vectors;
    if (rule.where == CLUSTER) return cluster_of(rule, chunks, edges, across);
    if (rule.where == CACHED) {
        Team found = cluster_of(rule, chunks, edges, across);
        found.cluster = 0, found.cached = true;
        return found;
    }
    if (rule.where == LOOP && chunks > team * vectors) {
        return {threads, team, vectors, 0, chunks < LONGEST_SEGMENT ? chunks : LONGEST_SEGMENT, across};
    }
    if (rule.where == SEGMENTS) {
        i64 span = across ? SEGMENT_APART : SEGMENT;
        while (!across && span < LONGEST_SEGMENT && span * MANY_SEGMENTS <= chunks) span *= 2;
        return {threads, team, vectors, 0, span, across};
    }
    const int keep = rule.where == REGISTERS ? 1 : rule.where == SHARED ? 2 : 0;
    if (team > 0) return {threads, team, vectors, keep, 0, across};
    const i64 warps = up(chunks, 32 * vectors), needed = (warps < rule.warps ? rule.warps : warps) * 32;
    return {int(needed), 0, vectors, keep, 0, false, 0, keep == 2 ? threads : power(needed)};
}

// What is known of a pass beside its operands: those that have the last dim of a row, that stay on the chip, that are read, as bits;
// whether it has dims of rows, and whether a row has one dim; the readings that reduce, those of a row that does not stay on the chip, and
// whether one more stores; the words of a result; whether launches may share a row; and the bytes of each operand's elements along a row.
struct Facts {
    u64 wide, kept, read;
    bool rowed, one_dim;
    int readings, long_readings;
    bool stores;
    int words;
    bool splits;
    const int* bytes;
    int operands;
    bool pieces = false;  // whether it goes by pieces of a row, whose dims keep their order
    u64 near = 0;         // the indices along whose dims it reads neighbours, which kernels for any dims find one by one
    int beside = 0;       // bytes of an element that stay on the chip with what is held
    bool dear = false;    // whether elements take many instructions

    // Whether other blocks store what follows from a row than those that share it.
    template <typename Team> constexpr bool stores_apart(const Team& t) const { return stores && !pieces && !t.across && t.team == t.threads; }
    static constexpr bool has(u64 mask, int k) { return mask >> k & 1; }
    constexpr int vec() const {
        int widest = 0;
        for (int k = 0; k < operands; k++) widest = has(wide, k) && bytes[k] > widest ? bytes[k] : widest;
        return widest == 0 ? 1 : 16 / widest;
    }
    constexpr int most_vec() const {  // of any call
        int least = 16;
        for (int k = 0; k < operands; k++) least = bytes[k] > 0 && bytes[k] < least ? bytes[k] : least;
        return 16 / least;
    }
    constexpr int main() const {  // any of those that move in vectors, which are aligned alike
        for (int k = 0; k < operands; k++) {
            if (has(wide & read, k)) return k;
        }
        for (int k = 0; k < operands; k++) {
            if (has(wide, k)) return k;
        }
        return 0;
    }
    constexpr int count(u64 mask) const {
        int found = 0;
        for (int k = 0; k < operands; k++) found += has(mask, k) && bytes[k] > 0;
        return found;
    }
    constexpr bool holds() const { return count(kept) > 0; }
    // Bytes of a vector of some operands, and the registers that it takes of what is held (or, where nothing is, of all that is read).
    constexpr int size(u64 mask, int vec) const {
        int found = 0;
        for (int k = 0; k < operands; k++) found += has(mask, k) ? vec * bytes[k] : 0;
        return found;
    }
    constexpr int registers(int vec) const {
        int found = 0;
        for (int k = 0; k < operands; k++) {
            if (bytes[k] > 0 && has(holds() ? kept : read, k)) found += vec * bytes[k] < 4 ? 1 : vec * bytes[k] / 4;
        }
        return found < 1 ? 1 : found;
    }
    // The bytes at most of a kernel's own shared memory.
    constexpr int declared(int threads, int team, bool across, bool cluster) const {
        int size = 0, slots = 2;
        while (slots * 32 < threads) slots *= 2;
        if (across) slots = threads;
        const int one = slots * words, both = 2 * one < 4096 ? 2 * one : 4096;
        if (across ? team > 1 : team <= 0 || team > 32) size += wider(one, both);
        if (cluster) size += 16 * (threads / 32) * words;
        return 4 * size * (readings % SEARCHING) + (cluster ? BARRIERS : 0);
    }
};

// Whether some call moves in vectors of so many elements: rows of one dim take the widest there are.
[[maybe_unused]] constexpr bool takes(const Facts& f, int vec) {
    bool found = !f.one_dim || vec == 1;
    for (int k = 0; k < f.operands; k++) found = found || vec * f.bytes[k] == 16;
    return found;
}
// Whether a pass has one element for each row.
[[maybe_unused]] constexpr bool lone(const Facts& f) { return f.readings == 0 && !f.stores; }
// The launches that share a row.
[[maybe_unused]] constexpr int steps(const Facts& f) { return f.splits && f.readings > 0 ? 2 * f.long_readings + f.stores : 0; }
// Whether bytes are all that is stored of a row's elements, and what is held of it has more.
[[maybe_unused]] constexpr bool narrow(const Facts& f) {
    int results = 0;
    for (int k = 0; k < f.operands; k++) {
        const bool result = f.bytes[k] > 0 && !Facts::has(f.read, k);
        if (result ? f.bytes[k] > 1 : f.bytes[k] == 1 && Facts::has(f.kept, k)) return false;
        results += result;
    }
    return results > 0;
}
[[maybe_unused]] constexpr int kind(const Facts& f) {
    if (f.holds() && f.pieces) return 6;
    if (f.holds() && f.readings > 0 && narrow(f)) return f.readings == 1 ? 4 : 5;
    return !f.holds() ? 2 : f.readings > 1 ? 1 : f.readings == 1 && f.words > FEW_WORDS ? 3 : 0;
}
// Whether what was measured holds for it, where elements move in vectors.
[[maybe_unused]] constexpr bool known(const Facts& f) {
    return f.count(f.kept) <= 1 && (f.holds() || f.count(f.read) == 1) && (f.rowed || f.readings == 0);
}
// What rules ask of a pass in vectors of some elements: registers of a vector, how many operands are held, and the bytes of a vector of all.
struct Asked { int vec, registers, held, bytes, readings; bool clusters, dear, shares; };
[[maybe_unused]] constexpr Asked asked_of(const Facts& f, int vec) {
    return {vec, f.registers(vec), f.count(f.kept), f.size(f.kept, vec) + vec * f.beside, f.readings, f.readings > 0 && f.readings <= MOST_READINGS, f.dear,
            f.splits && f.stores && !f.pieces};
}
[[maybe_unused]] constexpr bool applies(const Rule& r, const Asked& a) {
    return r.least_registers <= a.registers && a.registers <= r.most_registers && r.least_elements <= a.vec && a.vec <= r.most_elements &&
           a.held <= r.held && a.readings >= r.readings && (r.where != CLUSTER || a.clusters) && (a.dear || !r.dear) &&
           (r.where != CACHED || (a.clusters && a.shares));
}

// Whether a thread's registers have no room for what stays beside a row's elements, of so many bytes each.
[[maybe_unused]] constexpr bool crowds(const Rule& r, int vec, int beside) { return r.where == REGISTERS && r.vectors * vec * beside > CROWDED; }

// The kernels of a pass that launches on the architectures of the file can need, each shape once.
template <int STEPS> struct Kernels {
    const Facts& facts;
    Built at[256 + 32 * STEPS] = {};
    int count = 0;

    constexpr explicit Kernels(const Facts& f) : facts(f) {
        for (int team = 1; team <= (lone(f) ? 1 : SHORT); team *= 2) {
            add({128, 8, team, 1, f.holds(), false, false, false, false, 1, -1, 0, false}, false);
        }
        for (int arch : ARCHS) {
            if (f.wide != 0) add_rules(arch / 10, f.vec(), false, false);
            for (int vec = f.most_vec(); vec > 0; vec /= 2) {
                if (f.near ? vec == 1 : takes(f, vec)) add_rules(arch / 10, vec, false, true);
            }
            if (!lone(f)) add_rules(arch / 10, 1, true, true);
        }
    }
    // Those for rows in such vectors, but for what no row's length comes to.
    constexpr void add_rules(int arch, int vec, bool across, bool general) {
        const Facts& f = facts;
        const Asked asked = asked_of(f, vec);
        i64 known = 0, covered = 0;
        bool all_fit = true;
        const Rules steps = host::known(f) && vec > 1 ? ladder(arch, kind(f)) : Rules{nullptr, 0};
        if (steps.count > 0 && limits(arch).cluster > 0 && f.readings > 1 && f.readings <= MOST_READINGS && f.count(f.wide & f.read & ~f.kept) > 1) {
            for (const Rule& rule : SHIFTED) add_rule(rule, vec, false, general);
        }
        if (steps.count > 0 && general && !f.one_dim && vec > 4 && f.readings > 1) {
            for (const Rule& rule : SEVERAL_DIMS) add_rule(rule, vec, false, general);
        }
        for (const Rule& rule : DEAR) {
            const bool has = rule.where != CLUSTER || (limits(arch).cluster > 0 && asked.clusters);
            if (steps.count > 0 && f.dear && has && !crowds(rule, vec, f.beside)) add_rule(rule, vec, false, general);
        }
        for (int i = 0; i < steps.count; i++) {
            if (steps.at[i].where == CLUSTER && (limits(arch).cluster == 0 || !applies(steps.at[i], asked))) continue;
            if ((steps.at[i].whole && vec <= 4) || crowds(steps.at[i], vec, f.beside)) continue;
            all_fit = all_fit && fits(steps.at[i], arch, asked.bytes, false);
            if (all_fit) known = steps.at[i].longest;
            add_rule(steps.at[i], vec, false, general);
        }
        const Rules others = rules(across, f.holds());
        for (int i = 0; i < others.count && !(lone(f) && covered > 0); i++) {
            const Rule& rule = others.at[i];
            if (rule.longest > SHORT && covered < known) covered = known;
            if (rule.longest <= covered || !applies(rule, asked) || crowds(rule, vec, f.beside)) continue;
            if ((rule.where == CLUSTER || rule.where == CACHED) && limits(arch).cluster == 0) continue;
            add_rule(rule, vec, across, general);
            if (rule.above <= covered && rule.room == ANY && !rule.alone && fits(rule, arch, asked.bytes, across)) covered = rule.longest;
        }
    }
    constexpr void add_rule(const Rule& r, int vec, bool across, bool general) {
        const bool cached = r.where == CACHED, cluster = r.where == CLUSTER || cached, segments = r.where == LOOP || r.where == SEGMENTS;
        const int keep = r.where == REGISTERS ? 1 : r.where == SHARED || cluster ? 2 : 0;
        const bool splits = r.where == SEGMENTS || (r.where == LOOP && r.longest > LONGEST_SEGMENT);
        const Built found = {r.threads, r.blocks, cluster && !across && !cached ? 0 : r.team, r.vectors, keep, across, segments, cluster, general, vec, -1, 0, false};
        if (!cached) return add(found, splits);
        for (int step : {-1 - 2 * facts.long_readings, -2 * facts.long_readings}) add_step(found, step);
    }
    // Whether a device of an architecture has what a rule's teams ask for, whatever the row.
    constexpr bool fits(const Rule& r, int arch, int held, bool across) const {
        const bool cluster = r.where == CLUSTER;
        const int own = facts.declared(r.threads, r.team, across, cluster || r.where == CACHED);
        const int rows = r.where == SHARED || cluster || r.where == CACHED ? held * r.threads * r.vectors : 0;
        if (cluster && (r.longest > i64(limits(arch).cluster) * (across ? r.team : r.threads) * r.vectors)) return false;
        return own <= MAX_STATIC && rows <= MAX_SHARED && own + rows <= limits(arch).shared;
    }
    // Add a kernel of a shape, if it is not there yet; a block of any size has as many threads as its results have room.
    // Kernels that are one have the threads of the larger; as many registers as the least demanding needs, but in clusters, whose rows
    // are in shared memory, as the most demanding.
    constexpr void add(Built b, bool splits) {
        const Facts& f = facts;
        while (b.team == 0 && !b.cluster && b.threads > 64 && f.declared(b.threads, b.team, false, false) > MAX_STATIC) b.threads /= 2;
        if (f.declared(b.threads, b.team, b.across, b.cluster) > MAX_STATIC) return;
        for (int step = -1; step < (splits ? STEPS : 0); step++) add_step(b, step);
    }
    constexpr void add_step(Built b, int step) {
        b.step = step;
        if (step >= 0 && step == STEPS - 1 && facts.stores_apart(b)) b.threads = b.team = STORING[0], b.vectors = STORING[1], b.blocks = STORING[2];
        const int k = find(b);
        if (k < 0) {
            at[count++] = b;
        } else {
            const int before = at[k].blocks * at[k].threads, more = b.blocks * b.threads;
            const int both = (before < more) == b.cluster ? more : before;
            at[k].threads = wider(at[k].threads, b.threads);
            at[k].blocks = wider(1, both / at[k].threads);
        }
    }
    // Whether blocks of clusters can be of any size up to the larger: its room for results leaves all that rows may take.
    constexpr bool one_size(int threads) const {
        bool enough = true;
        for (int arch : ARCHS) {
            const Limits most = limits(arch / 10);
            enough = enough && (most.cluster == 0 || facts.declared(threads, 0, false, true) + MAX_SHARED <= most.shared);
        }
        return enough;
    }
    constexpr int find(const Built& b) const {
        for (int k = 0; k < count; k++) {
            const Built& a = at[k];
            const bool sized = a.threads == b.threads || (a.team == 0 && (a.keep < 2 || (a.cluster && one_size(wider(a.threads, b.threads)))));
            if (sized && a.team == b.team && a.vectors == b.vectors && a.keep == b.keep && a.across == b.across && a.segments == b.segments &&
                a.cluster == b.cluster && a.general == b.general && a.vec == b.vec && a.step == b.step) return k;
        }
        return -1;
    }
};

// A launch: which kernel, its blocks, the threads of each, the blocks of a cluster, the bytes of shared memory.
struct Launch { int kernel; i64 blocks; int threads, cluster = 1, shared = 0; };

// The rows of a call and the elements of a row: their dims merged, and in what vectors they are walked.
template <int K> struct RowDims {
    static constexpr u64 FAR = UINT_MAX - (1 << 20);
    static constexpr i64 NONE[64] = {};

    Dims<K> row, inner;
    const RowOperand* operands;
    const Facts& f;
    int main = -1, vec = 1, misaligned = 0;
    bool edges = false, across = false;  // whether rows begin or end within a vector, and elements lie apart
    u64 wide = 0;
    i64 segments = 1, span = 1;

    // Rank at most 64. Where `columns` are added up there are none but whole vectors.
    RowDims(int dims, int outer, const i64* sizes, const RowOperand (&given)[K], const Facts& f, bool columns) : operands(given), f(f) {
        choose_main(dims, outer);
        const int lead = main < 0 ? 0 : main;
        row.merge(outer, sizes, lead, 0, [&](int k) { return given[k].stride; });
        const auto along = [&](int k) { return given[k].element ? given[k].stride + outer : NONE; };
        inner.merge(dims - outer, sizes + outer, lead, 0, along, f.pieces);
        if (main < 0) return;
        choose_vectors(columns);
        across = step(main) != 0 && step(main) * operands[main].bytes >= SECTOR;
        misaligned = int(place(main) % vec);
    }
    // The operand whose layout leads: the one that moves most, of those the one whose neighbours are a row's.
    void choose_main(int dims, int outer) {
        i64 best = -1;
        for (int k = 0; k < K; k++) {
            if (!memory(k)) continue;
            i64 moves = 0, unit = 0;
            for (int d = outer; d < dims; d++) {
                moves += operands[k].stride[d] != 0;
                unit |= operands[k].stride[d] == 1;
            }
            const i64 leads = ((i64(Facts::has(f.read, k)) * 128 + moves) * 128 + operands[k].rows) * 2 + unit;
            if (leads > best) main = k, best = leads;
        }
    }
    bool memory(int k) const { return operands[k].element && operands[k].bytes > 0; }
    i64 place(int k) const { return i64(uintptr_t(operands[k].pointer) % 16 / unsigned(operands[k].bytes)); }
    i64 step(int k) const { return inner.stride[k][inner.rank - 1]; }
    // Whether all steps of an operand are whole vectors: those of the rows, and those of a row but the last.
    bool whole(int k, int v) const {
        for (int d = 0; d < row.rank; d++) {
            if (row.stride[k][d] % v != 0) return false;
        }
        for (int d = 0; d < inner.rank - 1; d++) {
            if (inner.stride[k][d] % v != 0) return false;
        }
        return place(k) % v == 0;
    }
    bool alike(int k) const {
        for (int d = 0; d < row.rank; d++) {
            if ((row.stride[k][d] - row.stride[main][d]) % vec != 0) return false;
        }
        return (place(k) - place(main)) % vec == 0;
    }
    // The elements of a vector, whether rows begin or end within one, and the operands that move in vectors.
    void choose_vectors(bool columns) {
        if (step(main) != 1) return;
        int bytes = 0;
        const auto along = [&](int k) {  // columns' results are written one by one, at the end
            return memory(k) && (!columns || Facts::has(f.read, k) || operands[k].rows > 0);
        };
        for (int k = 0; k < K; k++) bytes = along(k) && step(k) == 1 ? wider(bytes, operands[k].bytes) : bytes;
        vec = 16 / bytes;
        const i64 length = inner.size[inner.rank - 1];
        const bool always = columns || inner.rank > 1;
        if (always) {  // whole vectors along the innermost dim
            while (vec > 1 && !(length % vec == 0 && whole(main, vec))) vec /= 2;
        } else {
            edges = inner.count % vec != 0 || !whole(main, vec);
            if (edges && inner.count < 4 * vec) vec = 1, edges = false;
        }
        for (int k = 0; k < K && vec > 1; k++) {
            if (along(k) && step(k) == 1 && (always ? whole(k, vec) : alike(k))) wide |= u64(1) << k;
            if (along(k) && inner.rank > 1 && K < 32 && even(k)) wide |= u64(1) << 32 << k;
        }
    }
    // Whether an operand moves in vectors and its elements follow one another without gaps, or it stands still along the innermost dim.
    bool even(int k) const {
        if (!Facts::has(wide, k)) return step(k) == 0;
        for (int d = 0; d < inner.rank - 1; d++) {
            if (inner.stride[k][d] != inner.stride[k][d + 1] * inner.size[d + 1]) return false;
        }
        return true;
    }
    // Whether dims are merged into one each, and an index of 32 bits has all places; `rows` are counted to, and so many segments.
    bool flat(i64 rows, i64 segments) const {
        u64 last = u64((rows > inner.count ? rows : inner.count) + (1 << 16));
        for (int k = 0; k < K; k++) last = u64(row.last(k) + inner.last(k)) > last ? u64(row.last(k) + inner.last(k)) : last;
        return row.rank == 1 && inner.rank == 1 && last <= FAR && u64(row.count) * u64(segments) <= FAR;
    }
    // Whether neighbours lie beside one another in every row; elements without vectors, for rows in which that does not help.
    bool lines() const {
        bool found = true;
        for (int k = 0; k < K; k++) found = found && (!Facts::has(f.near, k) || step(k) == 1);
        return found;
    }
    void one_by_one() {
        vec = 1, misaligned = 0, wide = 0;
        edges = false;
    }
    bool full() const { return f.wide != 0 && vec == f.vec() && (wide & f.wide) == f.wide; }
    // A kernel's argument.
    template <int RR, int RI, int G, typename Index> void fill(Rows<RR, RI, K, G, Index>& rows, void* work) const {
        rows.rows = Index(row.count);
        rows.n = Index(inner.count);
        rows.segments = Index(segments);
        rows.span = Index(span);
        rows.misaligned = Index(misaligned);
        rows.main = Index(main < 0 ? 0 : main);
        rows.wide = wide;
        rows.slot = Index(f.words);
        rows.work = static_cast<unsigned*>(work);
        row.put(rows.row_size, rows.row_stride);
        inner.put(rows.size, rows.stride);
        for (int k = 0, g = 0; k < K; k++) {
            if (operands[k].gather_size == 0) continue;
            rows.gather_size[g] = operands[k].gather_size;
            rows.gather_stride[g++] = operands[k].gather_stride;
        }
    }
};

// How they are walked: as `plan` in kgen/runtime/rows.py.
template <int K> struct RowPlan : RowDims<K> {
    using Base = RowDims<K>;
    using Base::row, Base::inner, Base::f, Base::operands, Base::vec, Base::edges, Base::across, Base::segments, Base::span;
    const Built* kernels;
    int count, launches = 0;
    bool general = false, served = true;  // whether its kernels are those for any rows, and there are any
    i64 groups = 0, work = 0, stored = 0;  // of teams that fill a block; bytes; blocks that store what others have read
    i64 cached = 0, cleared = 0;           // turns of blocks that take all readings of a row; blocks that clear what these tell
    Launch first = {-1, 0, 0};

    // `arch` is the device's: 90 for sm_90.
    template <typename P> RowPlan(P, int dims, int outer, const i64* sizes, const RowOperand (&given)[K], int arch)
        : Base(dims, outer, sizes, given, P::FACTS, false), kernels(P::KERNELS.at), count(P::KERNELS.count) {
        if (row.count == 0) return;
        Team team = choose_team(arch);
        if (f.near != 0 && vec > 1 && (first.kernel < 0 || !this->lines())) {
            this->one_by_one();
            team = choose_team(arch);
        }
        served = first.kernel >= 0;
        if (served) finish(team);
    }
    // The launches, in their order: one, or one for the segments of each reading, and one to combine their results.
    Launch launch(int k) const {
        if (cached > 0 && k == 0) return {first.kernel + 1, cleared < CLEARING ? cleared : CLEARING, first.threads, 1, first.shared};
        if (cached > 0) return {first.kernel, cached, first.threads, 1, first.shared};
        if (stored > 0 && k == launches - 1) return {storing(), stored, STORING[0]};
        return launches == 1 ? first : Launch{first.kernel + 1 + k, k % 2 ? groups : groups * segments, first.threads};
    }
    // The team of a rule; of longer segments where to combine threads' parts takes long.
    Team team_for(const Rule& rule, i64 chunks, bool across) const {
        Team found = team_of(rule, chunks, edges, across);
        if (found.span == SEGMENT && !across && found.cluster == 0 && f.words > FEW_WORDS) found.span *= 2;
        return found;
    }
    // The first team, by what was measured and then by the rules, that the device has room for; if the file is not built for it, one that
    // there is a kernel for.
    Team choose_team(int arch) {
        const i64 chunks = inner.count / vec;
        const Asked asked = asked_of(f, vec);
        const int size = asked.bytes;
        Limits most = limits(arch);
        if (f.readings == 0 || f.readings > MOST_READINGS) most.cluster = 0;
        int built = 0;  // the one of the file's architectures that the device runs
        for (int a : ARCHS) built = a / 10 <= arch && a / 10 > built ? a / 10 : built;
        const bool measured = host::known(f) && vec > 1 && !across;
        const Rules steps = measured ? ladder(built, kind(f)) : Rules{nullptr, 0};
        const bool shifted = most.cluster > 0 && f.readings > 1 && inner.count % vec != 0 && parameters() > 1;
        const bool several = inner.rank > 1 && vec > 4 && f.readings > 1;
        Team before;
        const auto taken = [&](const auto& rules, bool asks) {
            for (const Rule& rule : rules) {
                if (!asks || steps.count == 0 || chunks > rule.longest || chunks <= rule.above || crowds(rule, vec, f.beside)) continue;
                if ((rule.where != CLUSTER || most.cluster > 0) && fits(before = team_for(rule, chunks, false), most, size)) return true;
            }
            return false;
        };
        if (taken(SHIFTED, shifted) || taken(SEVERAL_DIMS, several) || taken(DEAR, f.dear)) return before;
        for (int i = 0; i < steps.count; i++) {
            const Rule& step = steps.at[i];
            if (chunks <= SHORT && step.longest > SHORT) break;
            if (chunks > step.longest || (most.cluster == 0 && step.where == CLUSTER) || (step.alone && parameters() > 0)) continue;
            if ((step.whole && (vec <= 4 || inner.count % vec != 0)) || crowds(step, vec, f.beside)) continue;
            const Team found = team_for(step, chunks, false);
            if (fits(found, most, size)) return found;
            break;
        }
        const Rules others = rules(across, f.holds());
        for (int i = 0; i < others.count; i++) {
            const Rule& rule = others.at[i];
            if (chunks > rule.longest || chunks <= rule.above || !applies(rule, asked) || chunks * size > rule.room) continue;
            if ((rule.alone && parameters() > 0) || crowds(rule, vec, f.beside) || (rule.where == CACHED && most.cluster == 0)) continue;
            const Team found = team_for(rule, chunks, across);
            if (fits(found, most, size)) return found;
        }
        return {};
    }
    // Operands that all rows share, with neighbouring elements: most rows begin elsewhere in their vectors.
    int parameters() const {
        int found = 0;
        for (int k = 0; k < K; k++) found += this->memory(k) && Facts::has(f.read, k) && operands[k].rows == 0 && this->step(k) == 1;
        return found;
    }
    bool fits(const Team& t, const Limits& most, int size) {
        const int own = f.declared(t.most ? t.most : t.threads, t.team, t.across, t.cluster > 0 || t.cached);
        const i64 rows = t.keep == 2 ? i64(t.threads) * t.vectors * size : 0;
        if (rows > MAX_SHARED || own > MAX_STATIC || own + rows > most.shared) return false;
        if (t.cluster && (t.cluster < 2 || t.cluster > most.cluster)) return false;
        const i64 chunks = inner.count / vec, own_segments = t.span > 0 ? up(chunks, t.span) : 1;
        const bool flat = this->flat(row.count, own_segments);
        first.kernel = flat && (this->full() || vec == 1) ? serves(t, false) : -1;
        general = first.kernel < 0;
        if (general) first.kernel = serves(t, true);
        first.shared = int(rows);
        return first.kernel >= 0;
    }
    // The number of the kernel that a team's launch takes, -1 where there is none.
    int serves(const Team& t, bool general) const {
        for (int k = 0; k < count; k++) {
            const Built& a = kernels[k];
            const int team = t.cluster && !t.across ? 0 : t.team, threads = t.most ? t.most : t.threads;
            const bool sized = team > 0 ? a.threads == threads : a.threads >= threads;
            if (sized && a.team == team && a.vectors == t.vectors && a.keep == t.keep && a.across == t.across && a.cluster == (t.cluster > 0 || t.cached) &&
                (a.segments || t.span == 0 || a.cluster) && a.general == general && a.vec == vec && a.step == (t.cached ? -1 - 2 * f.long_readings : -1)) return k;
        }
        return -1;
    }
    // The kernel that stores what other blocks have read, which may be that of several teams.
    int storing() const {
        int k = 0;
        const auto fits = [&](const Built& a) { return a.team == STORING[0] && a.vectors == STORING[1] && a.segments && !a.cluster && !a.across; };
        while (!fits(kernels[k]) || kernels[k].general != general || kernels[k].vec != vec || kernels[k].step != launches - 1) k++;
        return k;
    }
    void finish(const Team& team) {
        const i64 rows = row.count, chunks = inner.count / vec;
        first.threads = team.threads;
        if (team.across && team.team > 1) {  // no more teams than rows
            first.threads = team.team * power(rows < team.threads / team.team ? rows : team.threads / team.team);
            first.shared = first.shared / team.threads * first.threads;
        }
        span = team.span > 0 ? team.span : chunks > 1 ? chunks : 1;
        segments = team.span > 0 && chunks > 0 ? up(chunks, span) : 1;
        first.cluster = team.cluster > 0 ? int(segments) : 1;
        groups = up(rows, first.threads / (team.team > 0 ? team.team : first.threads));
        first.blocks = groups * first.cluster;
        launches = 1;
        const i64 least = team.across ? SEGMENT_APART : SEGMENT, readings = f.long_readings;
        if (team.cached) {
            const i64 told = 1 + readings * rows * f.words + up(readings * rows, 2);
            cached = (readings + 1) * (rows * segments + readings * (segments + LATER)), cleared = up(told, team.threads);
            work = 8 * told + 4 * f.words * rows * segments + 4, launches = 2;
            return;
        }
        if (team.cluster == 0 && segments > 1 && groups < (chunks < LONG_ROW * least ? FEW_ROWS : FEW_LONG_ROWS) && f.readings > 0 && f.splits) {
            launches = steps(f);
            work = 4 * i64(f.words) * rows * (segments + f.long_readings);
            if (f.stores_apart(team)) stored = rows * (chunks > 0 ? up(chunks, STORING[0] * STORING[1]) : 1);
        }
    }
};

}  // namespace host
}  // namespace
#endif
