// How a pass over rows is launched, by the table of launches: as kgen's runtime does it (kgen/runtime/rows.py).
#pragma once
#include "kgen_kernels.cuh"

#ifndef __CUDACC_RTC__
namespace {
namespace host {

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
    // Whether rows lie side by side so that a thread may take several, and which operands then have an element of each in one vector.
    bool side_by_side(u64& side) const {
        const int count = f.beside_one_another();
        side = 0;
        for (int k = 0; k < K; k++) side |= memory(k) && row.stride[k][row.rank - 1] == 1 && in_vectors(k, count) ? u64(1) << k : 0;
        return count > 1 && row.size[row.rank - 1] % count == 0 && Facts::has(side, main);
    }
    bool in_vectors(int k, int count) const {
        for (int d = 0; d < row.rank - 1; d++) {
            if (row.stride[k][d] % count != 0) return false;
        }
        for (int d = 0; d < inner.rank; d++) {
            if (inner.stride[k][d] % count != 0) return false;
        }
        return place(k) % count == 0;
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
    int count, launches = 0, abreast = 0, most_abreast = 0;  // rows that a thread takes together, and could
    u64 side = 0;  // operands that have an element of each in a vector
    bool general = false, served = true;  // whether its kernels are those for any rows, and there are any
    i64 groups = 0, work = 0, stored = 0;  // of teams that fill a block; bytes; blocks that store what others have read
    i64 cached = 0, cleared = 0;           // turns of blocks that take all readings of a row; blocks that clear what these tell
    Launch first = {-1, 0, 0};

    // `arch` is the device's: 90 for sm_90.
    template <typename P> RowPlan(P, int dims, int outer, const i64* sizes, const RowOperand (&given)[K], int arch)
        : Base(dims, outer, sizes, given, P::FACTS, false), kernels(P::KERNELS.at), count(P::KERNELS.count) {
        if (row.count == 0) return;
        if (across && f.beside_one_another() > 0 && inner.count <= f.abreast) most_abreast = this->side_by_side(side) ? f.beside_one_another() : 1;
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
        if (abreast > 0 && k == 1 && segments >= MANY_PARTS) return {combining(), up(row.count, COMBINING[0] / COMBINING[1]), COMBINING[0]};
        if (abreast > 0 && launches > 1) return {stepping(k), k % 2 ? up(row.count, first.threads / kernels[first.kernel].team) : groups * (k > 0 ? stored : segments), first.threads};
        if (stored > 0 && k == launches - 1) return {storing(), stored, STORING[0]};
        return launches == 1 ? first : Launch{stepping(k), k % 2 ? groups : groups * segments, first.threads};
    }
    // The team of a rule; of longer segments where to combine threads' parts takes long.
    Team team_for(const Rule& rule, i64 chunks, bool across) const {
        Team found = team_of(rule, chunks, edges, across);
        if (is_abreast(rule)) found.room = found.threads, found.threads = widened(found.threads, f.beside_one_another(), most_abreast), found.abreast = most_abreast;
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
        const bool measured = host::known(f) && vec > 1 && !across;
        const Rules steps = measured ? ladder(built_for(arch), kind(f)) : Rules{nullptr, 0};
        const bool shifted = most.cluster > 0 && f.readings > 1 && inner.count % vec != 0 && parameters() > 1;
        const bool several = inner.rank > 1 && vec > 4 && f.readings > 1;
        const bool ends = ending(f, vec) && inner.rank == 1 && inner.count % vec != 0 && (f.readings == 1 || parameters() < 2);
        Team before;
        const auto taken = [&](const auto& rules, bool asks) {
            for (const Rule& rule : rules) {
                if (!asks || steps.count == 0 || chunks > rule.longest || chunks <= rule.above || crowds(rule, vec, f.beside)) continue;
                if (rule.least_elements > vec || vec > rule.most_elements || (rule.alone && (f.readings > 1 || parameters() > 0))) continue;
                if ((rule.where != CLUSTER || most.cluster > 0) && fits(before = team_for(rule, chunks, false), most, size)) return true;
            }
            return false;
        };
        if (inner.rank > 1 && chunks * size > SCATTERED_ABOVE && !across && scatters(f)) {
            for (const Rule& rule : SCATTERED) {
                if (applies(rule, asked) && fits(before = team_for(rule, chunks, false), most, size)) return before;
            }
        }
        const i64 line = inner.size[inner.rank - 1];
        const bool once = inner.rank > 1 && inner.count * f.size(f.read, 1) > SCATTERED_ONCE_ABOVE && !across && scatters_once(f);
        if (once && (vec == 1 || line <= SCATTERED_LINE)) {
            int registers = 0;
            for (int k = 0; k < K; k++) {
                if (this->memory(k) && Facts::has(f.read, k) && this->step(k) != 0) registers += vec * f.size(u64(1) << k, 1) < 4 ? 1 : vec * f.size(u64(1) << k, 1) / 4;
            }
            for (const Rule& rule : SCATTERED_ONCE) {
                const bool few = rule.least_registers <= wider(registers, 1) && registers <= rule.most_registers;
                if (few && rule.least_elements <= vec && vec <= rule.most_elements && fits(before = team_for(rule, chunks, false), most, size)) return before;
            }
        }
        if (taken(SHIFTED, shifted) || taken(SEVERAL_DIMS, several) || taken(DEAR, f.dear) || taken(ENDING, ends)) return before;
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
            if (is_abreast(rule) && most_abreast == 0) continue;
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
        const int own = t.abreast > 0 ? f.declared_abreast(t.room) : f.declared(t.most ? t.most : t.threads, t.team, t.across, t.cluster > 0 || t.cached);
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
                (a.segments || t.span == 0 || a.cluster) && a.general == general && a.vec == vec && a.abreast == t.abreast &&
                a.step == (t.cached ? -1 - 2 * f.long_readings : t.abreast > 0 && t.span > 0 ? 0 : -1)) return k;
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
    // The kernel that combines the segments of rows that lie side by side, where these are many.
    int combining() const {
        int k = 0;
        const auto fits = [](const Built& a) { return a.threads == COMBINING[0] && a.team == COMBINING[1] && a.segments && !a.cluster && !a.across; };
        while (!fits(kernels[k]) || kernels[k].general != general || kernels[k].vec != vec || kernels[k].step != 1) k++;
        return k;
    }
    // The kernel of a step of rows that blocks share: others may have come before it that are the same for another team.
    int stepping(int step) const {
        const Built& own = kernels[first.kernel];
        int k = 0;
        const auto fits = [&](const Built& a) {
            return a.threads == own.threads && a.team == own.team && a.vectors == own.vectors && a.across == own.across && a.segments && !a.cluster &&
                a.general == general;
        };
        while (!fits(kernels[k]) || kernels[k].vec != vec || kernels[k].step != step || kernels[k].abreast != (step % 2 ? 0 : abreast)) k++;
        return k;
    }
    void finish(const Team& team) {
        const i64 rows = row.count, chunks = inner.count / vec;
        first.threads = team.threads;
        const i64 one = team.abreast > 0 ? rows / team.abreast : rows;
        if (team.across && team.team > 1) {  // no more teams than rows
            first.threads = team.team * power(one < team.threads / team.team ? one : team.threads / team.team);
            first.shared = first.shared / team.threads * first.threads;
        }
        span = team.span > 0 ? team.span : chunks > 1 ? chunks : 1;
        segments = team.span > 0 && chunks > 0 ? up(chunks, span) : 1;
        first.cluster = team.cluster > 0 ? int(segments) : 1;
        groups = up(rows, first.threads / (team.team > 0 ? team.team : first.threads));
        first.blocks = groups * first.cluster;
        launches = 1, abreast = team.abreast;
        if (abreast > 0) {
            groups = up(one, first.threads / team.team), this->wide = abreast > 1 ? side : 0, first.blocks = groups;
            if (team.span == 0) return;
            launches = steps(f), stored = up(chunks, team.team * team.vectors), work = 4 * i64(f.words) * rows * (segments + 1);
            return;
        }
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
