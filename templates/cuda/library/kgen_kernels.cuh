// The kernels of a pass over rows, by the table of launches: those that its launches may need on the architectures of a file.
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

// The one of them that a device runs, 0 where it runs none: 90 for sm_90.
inline int built_for(int arch) {
    int built = 0;
    for (int a : ARCHS) built = a / 10 <= arch && a / 10 > built ? a / 10 : built;
    return built;
}

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
    int abreast = 0, room = 0;  // rows that a thread takes together, if it does; threads that share memory is counted for
};

// A kernel of a pass, by the arguments of its Walk, in vectors of `vec`: for rows without gaps whose operands are aligned alike, or
// (`general`) for any.
struct Built {
    int threads, blocks, team, vectors, keep;
    bool across, segments, cluster, general;
    int vec, step, stages;  // stages: of rows that follow one another (kgen_rounds.cuh)
    bool edges;             // whether those begin within a vector
    int abreast;            // rows that a thread takes together, if it does
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
    if (rule.where == SEGMENTS || rule.where == ABREAST_SEGMENTS) {
        i64 span = across ? SEGMENT_APART : SEGMENT;
        while (!across && span < LONGEST_SEGMENT && span * MANY_SEGMENTS <= chunks) span *= 2;
        return {threads, team, vectors, 0, span, across};
    }
    const int keep = rule.where == REGISTERS || rule.where == ABREAST ? 1 : rule.where == SHARED ? 2 : 0;
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
    i64 abreast = 0;      // up to how many elements of a row a thread may take rows that lie side by side together

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
    // How many rows a thread takes abreast, if any: 16 bytes of the widest operand.
    constexpr int beside_one_another() const { return abreast == 0 || !splits ? 0 : widest() < 2 ? MOST_ABREAST : 16 / widest(); }
    constexpr int widest() const {
        int found = 1;
        for (int k = 0; k < operands; k++) found = bytes[k] > found ? bytes[k] : found;
        return found;
    }
    constexpr int declared_abreast(int threads) const { return 4 * words * threads * beside_one_another(); }
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
struct Asked { int vec, registers, held, bytes, readings; bool clusters, dear, shares; int abreast; };
[[maybe_unused]] constexpr Asked asked_of(const Facts& f, int vec) {
    return {vec, f.registers(vec), f.count(f.kept), f.size(f.kept, vec) + vec * f.beside, f.readings, f.readings > 0 && f.readings <= MOST_READINGS, f.dear,
            f.splits && f.stores && !f.pieces, f.beside_one_another()};
}
[[maybe_unused]] constexpr bool is_abreast(const Rule& r) { return r.where == ABREAST || r.where == ABREAST_SEGMENTS; }
[[maybe_unused]] constexpr bool applies(const Rule& r, const Asked& a) {
    return r.least_registers <= a.registers && a.registers <= r.most_registers && r.least_elements <= a.vec && a.vec <= r.most_elements &&
           a.held <= r.held && a.readings >= r.readings && (r.where != CLUSTER || a.clusters) && (a.dear || !r.dear) &&
           (r.where != CACHED || (a.clusters && a.shares)) && (!is_abreast(r) || a.abreast > 0);
}

// Whether what a row comes to is all that is stored of one that several readings reduce, or that is read once: SCATTERED and SCATTERED_ONCE
// are for such, of several dims.
[[maybe_unused]] constexpr bool scatters(const Facts& f) { return f.splits && !f.stores && !f.pieces && f.holds() && f.readings > 1; }
[[maybe_unused]] constexpr bool scatters_once(const Facts& f) { return f.splits && !f.stores && !f.pieces && !f.holds() && f.readings == 1; }

// Whether a thread's registers have no room for what stays beside a row's elements, of so many bytes each.
[[maybe_unused]] constexpr bool crowds(const Rule& r, int vec, int beside) { return r.where == REGISTERS && r.vectors * vec * beside > CROWDED; }

// Whether ENDING is for rows that end within such a vector; behind several readings beside one parameter of columns at most.
[[maybe_unused]] constexpr bool ending(const Facts& f, int vec) { return f.readings > 0 && (kind(f) == 0 || (kind(f) == 1 && vec > 4)); }

// The threads of a block whose threads take `own` rows together, where with `most` it has so many.
[[maybe_unused]] constexpr int widened(int threads, int most, int own) { return threads * most / own < 1024 ? threads * most / own : 1024; }

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
        for (const Rule& rule : SCATTERED) {
            if (general && !f.one_dim && !across && scatters(f) && applies(rule, asked)) add_rule(rule, vec, false, general);
        }
        for (const Rule& rule : SCATTERED_ONCE) {
            const bool in = rule.least_elements <= vec && vec <= rule.most_elements;  // a call tells what moves along lines
            if (general && !f.one_dim && !across && scatters_once(f) && in) add_rule(rule, vec, false, general);
        }
        for (const Rule& rule : ENDING) {
            const bool in = rule.least_elements <= vec && vec <= rule.most_elements && (f.readings == 1 || !rule.alone);
            if (steps.count > 0 && ending(f, vec) && in && !crowds(rule, vec, f.beside)) add_rule(rule, vec, false, general);
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
        const int keep = r.where == REGISTERS || r.where == ABREAST ? 1 : r.where == SHARED || cluster ? 2 : 0;
        const bool splits = r.where == SEGMENTS || (r.where == LOOP && r.longest > LONGEST_SEGMENT);
        const Built found = {r.threads, r.blocks, cluster && !across && !cached ? 0 : r.team, r.vectors, keep, across, segments, cluster, general, vec, -1, 0, false};
        if (is_abreast(r)) return add_abreast(found, keep == 1);
        if (!cached) return add(found, splits);
        for (int step : {-1 - 2 * facts.long_readings, -2 * facts.long_readings}) add_step(found, step);
    }
    // The kernels of rows that a thread takes abreast: one where they stay in registers, else of those for segments one that puts these together.
    constexpr void add_abreast(Built b, bool stays) {
        b.segments = !stays;
        const int most = facts.beside_one_another(), threads = b.threads;
        if (facts.declared_abreast(threads) > MAX_STATIC) return;
        for (int own : {most, 1}) {
            const int many = widened(threads, most, own), blocks = b.blocks * threads / many;
            for (int step = stays ? -1 : 0; step < (stays ? 0 : STEPS); step++) {
                Built found = b;
                found.threads = many, found.blocks = blocks < 1 ? 1 : blocks, found.abreast = step == 1 ? 0 : own;
                add_step(found, step);
            }
        }
        if (stays) return;
        b.threads = COMBINING[0], b.team = COMBINING[1], b.across = false;
        add_step(b, 1);
    }
    // Whether a device of an architecture has what a rule's teams ask for, whatever the row.
    constexpr bool fits(const Rule& r, int arch, int held, bool across) const {
        if (is_abreast(r)) return false;  // not of rows that lie otherwise
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
                a.cluster == b.cluster && a.general == b.general && a.vec == b.vec && a.step == b.step && a.abreast == b.abreast) return k;
        }
        return -1;
    }
};

}  // namespace host
}  // namespace
#endif
