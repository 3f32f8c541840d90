// Rows of one element each that are sums over ranges: a thread may take several that lie side by side.
#pragma once
#include "kgen_aside.cuh"

// The ranges of rows whose pieces blocks share, at most, and the words of work before what is left of pieces: where each range's begin, and
// behind these the blocks of terms in a piece.
constexpr unsigned MOST_RANGES = 512, BEFORE_PIECES = MOST_RANGES + 8;
// Up to so many pieces of a range each thread takes up those of one row; more are taken up by several threads for a row.
constexpr unsigned FEW_PIECES = 64;
// Of a block of terms a half is on its way at a time: eight terms of each lane.
constexpr unsigned HALF_BLOCK = 64;

// Where the ranges of operand O begin, and how many terms they have, as all threads of a block have found; none of ranges without pieces.
struct Bounds { unsigned low[MOST_RANGES], terms[MOST_RANGES]; };
template <int O> __device__ inline Bounds& bounds() {
    __shared__ Bounds found;
    return found;
}

// A walk of such rows, of whose ranges teams add up parts. Where ranges are few, one launch leaves the sums of their pieces, a block of terms
// each, or sixteen, or 256 and so on where there is no room for as many; another takes them up. All blocks of the first look at all ranges,
// work out alike which pieces there are, and take every gridDim.x-th, so that it does not matter how unlike ranges are.
template <typename Walk, int COLUMNS_, u64 MOVES> struct Ranges : Aside<Walk, COLUMNS_, MOVES> {
    using Under = Aside<Walk, COLUMNS_, MOVES>;
    using Place = typename Under::Place;
    static constexpr int COLUMNS = COLUMNS_, THREADS = Under::THREADS, TEAMS = Under::TEAMS, TEAM = THREADS / TEAMS;
    static constexpr bool LEAVES = Under::ends(3), TAKES = Under::ends(1);
    static constexpr int SHARING = LEAVES ? 640 : TAKES ? 1024 : by_lanes<TEAM, TEAMS> ? 768 : 512;
    static constexpr int BLOCKS = COLUMNS == 1 ? Under::BLOCKS : TEAM > 1 ? SHARING / THREADS : 5;

    bool looking = LEAVES;  // at a range, to see how long it is
    unsigned range = threadIdx.x, blocks = 0;  // of terms, of the longest range of the row at hand
    unsigned each = 1, first = 0;  // blocks of terms in a piece; the number of the first piece of the range that is taken up
    unsigned items = 0;  // what blocks take, one by one: a piece of the rows of a block's teams

    __device__ explicit Ranges(const typename Under::Layout& rows) : Under(rows) {
        if constexpr (LEAVES) look();
        if constexpr (TAKES) {  // before the range itself is asked for
            range = unsigned(this->group * TEAMS / along());
            first = rows.work[range], each = rows.work[MOST_RANGES];
        }
    }
    __device__ bool leader() const { return !LEAVES && Under::leader(); }
    // How many rows have one range: those along the last of their dims; and how many ranges there are.
    __device__ Place along() const { return this->rows.row_size[Under::DIMS - 1]; }
    __device__ unsigned ranges() const { return unsigned(this->rows.rows / along()); }
    __device__ void look() {
        blocks = 0;
        this->go(Place(range < ranges() ? range : 0) * along());
    }
    // The pieces before those of each range.
    __device__ static unsigned* before() {
        __shared__ unsigned found[MOST_RANGES];
        return found;
    }
    // Whether a thread looks at another range, or leaves the sums of pieces now.
    __device__ bool more() {
        if constexpr (!LEAVES) {
            return false;
        } else {
            if (!looking) return false;
            if (range < ranges()) before()[range] = blocks;
            range += THREADS;
            if (range - threadIdx.x < ranges()) {
                look();
            } else {
                looking = false;
                arrange();
            }
            return true;
        }
    }
    // From the blocks of terms of each range to the pieces before it, of so many blocks each that there is room for all.
    __device__ void arrange() {
        constexpr int OWN = MOST_RANGES / THREADS;
        __shared__ unsigned of_warp[THREADS / 32];
        const unsigned room = unsigned(this->rows.slot), own = threadIdx.x * OWN, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        unsigned n[OWN], first = 0, total;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < OWN; k++) n[k] = own + k < ranges() ? before()[own + k] : 0;
        for (;; each *= 16) {
            unsigned sum = 0;
            #pragma unroll
            for (int k = 0; k < OWN; k++) sum += (n[k] + each - 1) / each;
            if (sum > room) sum = room + 1;  // more than there is room for in any case
            unsigned through = sum;  // with those of the threads before
            for (unsigned by = 1; by < 32; by *= 2) {
                const unsigned other = __shfl_up_sync(~0u, through, by);
                if (lane >= by) through += other;
            }
            if (lane == 31) of_warp[warp] = through;
            __syncthreads();
            total = 0;
            for (unsigned w = 0; w < THREADS / 32; w++) {
                if (w == warp) first = total + through - sum;
                total += of_warp[w];
            }
            __syncthreads();
            if (total <= room) break;
        }
        #pragma unroll
        for (int k = 0; k < OWN; k++) {
            before()[own + k] = first;
            if (blockIdx.x == 0) this->rows.work[own + k] = first;
            first += (n[k] + each - 1) / each;
        }
        if (blockIdx.x == 0 && threadIdx.x == 0) this->rows.work[MOST_RANGES] = each;
        items = total * unsigned(along() / TEAMS);
        __syncthreads();
    }
};

// A value of each of COLUMNS rows.
template <typename F, int COLUMNS_> struct Side {
    using Element = F;
    static constexpr int COLUMNS = COLUMNS_;
    F at[COLUMNS] = {};

    __device__ Side& operator+=(const Side& other) {
        #pragma unroll
        for (int k = 0; k < COLUMNS; k++) at[k] += other.at[k];
        return *this;
    }
    __device__ Side operator+(const Side& other) const { return Side(*this) += other; }
    // That of the thread whose number differs by a bit.
    __device__ Side opposite(int bit) const {
        Words<Side> words(*this);
        #pragma unroll
        for (unsigned& word : words.at) word = __shfl_xor_sync(~0u, word, bit);
        return words;
    }
};

// What an operand has at a place, for all of a thread's rows; and what it adds up to over a range, which is the same for all of them: with
// the first row (`column` 0) for each.
template <typename F, typename T, int COLUMNS, bool MOVES, int TEAM, int TEAMS> struct Neighbours {
    using All = Side<F, COLUMNS>;
    const T* first;
    i64 stride;
    int column = 0;
    All sums = {};

    __device__ Neighbours(const T* first, i64 stride) : first(first), stride(stride) {}
    // What all of a thread's rows have at a place, as it lies in memory, and what that is.
    using Term = Vector<T, MOVES ? COLUMNS : 1>;
    __device__ static Term term(const T* p) { return *reinterpret_cast<const Term*>(p); }
    __device__ static All value(const Term& term) {
        All found;
        #pragma unroll
        for (int k = 0; k < COLUMNS; k++) found.at[k] = F(element(term, MOVES ? k : 0));
        return found;
    }
    // The terms of a sum over a range, of which the j-th lies at place at(j).
    template <typename At> struct Terms {
        using Term = typename Neighbours::Term;
        const T* first;
        i64 stride;
        At at;

        __device__ Term term(i64 j) const { return Neighbours::term(first + at(j) * stride); }
        __device__ All value(const Term& term) const { return Neighbours::value(term); }
        __device__ All operator()(i64 j) const { return value(term(j)); }
    };
    template <typename At> __device__ Terms<At> terms(const At& at) const { return {first, stride, at}; }
};
template <typename F, int TEAM, int TEAMS, typename X> __device__ F shared_sum(i64 lo, i64 hi, const X& x);
template <typename F, typename T, int COLUMNS, bool MOVES, int TEAM, int TEAMS> __device__ inline F ranged_sum(i64 lo, i64 hi, Neighbours<F, T, COLUMNS, MOVES, TEAM, TEAMS>& x) {
    if (x.column == 0) x.sums = shared_sum<Side<F, COLUMNS>, TEAM, TEAMS>(lo, hi, x.terms([](i64 j) { return j; }));
    return x.sums.at[x.column];
}
template <typename F, typename T, int COLUMNS, bool MOVES, int TEAM, int TEAMS, typename Order>
__device__ inline F ranged_sum(i64 lo, i64 hi, Neighbours<F, T, COLUMNS, MOVES, TEAM, TEAMS>& x, const Order& order) {
    if (x.column == 0) x.sums = shared_sum<Side<F, COLUMNS>, TEAM, TEAMS>(lo, hi, x.terms([&order](i64 j) { return order(j); }));
    return x.sums.at[x.column];
}

// What is left of the pieces of operand O, by their numbers, of all rows that have one range.
template <int O, typename E, typename Walk> __device__ inline E* left(const Walk& walk, unsigned number) {
    int before = 0;
    #pragma unroll
    for (int k = 0; k < O; k++) before += Walk::MOVING >> k & 1;
    return reinterpret_cast<E*>(walk.rows.work + BEFORE_PIECES) + (u64(before) * walk.rows.slot + number) * walk.along() * Walk::COLUMNS;
}
// Where a block is among the pieces of operand O that it takes: at the half of a block of terms that begins `at` a place.
template <int O, typename Walk> struct PieceAtHand {
    unsigned item = blockIdx.x, number, group, range, begin, at, end;
    bool some;

    __device__ explicit PieceAtHand(const Walk& walk) { piece(walk); }
    __device__ void piece(const Walk& walk) {
        const unsigned groups = unsigned(walk.along() / Walk::TEAMS), *before = walk.before();
        for (; (some = item < walk.items); item += gridDim.x) {
            number = item / groups, group = item - number * groups;
            range = 0;
            for (unsigned high = walk.ranges(); high - range > 1; ) {
                const unsigned middle = (range + high) / 2;
                if (before[middle] <= number) range = middle;
                else high = middle;
            }
            const unsigned size = 128 * walk.each, low = bounds<O>().low[range], last = low + bounds<O>().terms[range];
            begin = at = low + size * (number - before[range]), end = last - begin < size ? last : begin + size;
            if (begin < last) return;  // another operand's range may have more pieces
        }
        at = end = 0;
    }
    __device__ int rest() const { return end - at < HALF_BLOCK ? int(end - at) : int(HALF_BLOCK); }
    __device__ bool ends() const { return end - at <= HALF_BLOCK; }
    __device__ bool ends_block() const { return ends() || ((at - begin) & HALF_BLOCK); }
    __device__ void next(const Walk& walk) {
        at += HALF_BLOCK;
        if (at < end) return;
        item += gridDim.x;
        piece(walk);
    }
    // The rows of a thread in operand O, from the first term of its lane on.
    template <typename T> __device__ const T* start(const Walk& walk, const T* p, i64 stride) const {
        using Place = typename Walk::Place;
        const Place row = Place(range) * walk.along() + group * Walk::TEAMS + threadIdx.x % Walk::TEAMS;
        return p + place_of(walk.rows.row_size, walk.rows.row_stride[O], row) + (at + threadIdx.x / Walk::TEAMS) * stride;
    }
};
// A vector that no thread asks for again: the L2 cache is for what is left of pieces.
template <typename V> __device__ inline V read_once(const V* p) {
    static_assert(sizeof(V) == 16);
    const uint4 words = __ldcs(reinterpret_cast<const uint4*>(p));
    return *reinterpret_cast<const V*>(&words);
}
// Leave the sums of the pieces that a block takes. The terms of one half of a block are on their way while those of another are added up,
// and their place is worked out before that.
template <int O, typename F, typename T, typename Walk> __device__ inline void leave(const Walk& walk, const T* p, i64 stride) {
    using E = typename F::Element;
    using V = Vector<T, F::COLUMNS>;
    constexpr int ROWS = F::COLUMNS * Walk::TEAMS, LOT = 8 * ROWS, OWN = HALF_BLOCK / 8;
    E* const room = shared_room<E, 2 * LOT>();
    const int lane = threadIdx.x / Walk::TEAMS;
    PieceAtHand<O, Walk> now(walk);
    V terms[OWN];
    const T* own = now.start(walk, p, stride);
    #pragma unroll
    for (int l = 0; l < OWN; l++) {
        if (now.rest() - lane > 8 * l) terms[l] = read_once(reinterpret_cast<const V*>(own + 8 * l * stride));
    }
    F sum;
    BlockSums<E> sums;
    unsigned blocks = 0, turn = 0;
    while (now.some) {
        PieceAtHand<O, Walk> ahead = now;
        ahead.next(walk);
        own = ahead.start(walk, p, stride);
        const int rest = now.rest() - lane, more = ahead.rest() - lane;
        #pragma unroll
        for (int l = 0; l < OWN; l++, own += 8 * stride) {
            if (rest > 8 * l) {
                #pragma unroll
                for (int k = 0; k < F::COLUMNS; k++) sum.at[k] += E(element(terms[l], k));
            }
            if (more > 8 * l) terms[l] = read_once(reinterpret_cast<const V*>(own));
        }
        if (now.ends_block()) {
            sums.add(from_lanes<F, Walk::TEAMS>(sum, room + turn), ++blocks);
            sum = F();
            turn ^= LOT;  // the other one, so that one barrier is enough
            if (now.ends()) {
                if (threadIdx.x < ROWS) left<O, E>(walk, now.number)[u64(now.group) * ROWS + threadIdx.x] = sums.all();
                sums = BlockSums<E>();
                blocks = 0;
            }
        }
        now = ahead;
    }
    __syncthreads();  // another sum may follow
}
// What was left of a range for one row, in the order in which one thread would add it up: `whole` pieces, `apart` elements apart.
template <typename E> __device__ inline E row_taken_up(const E* own, u64 apart, unsigned whole, E all) {
    BlockSums<E> groups;
    for (unsigned piece = 0; piece < whole; piece += 16) {
        E found[16], sum = E();
        #pragma unroll
        for (int l = 0; l < 16; l++, own += apart) found[l] = piece + l < whole ? *own : E();
        #pragma unroll
        for (int l = 0; l < 16; l++) sum += found[l];
        if (piece + 16 <= whole) groups.add(sum, piece / 16 + 1);
        else all += sum;
    }
    #pragma unroll
    for (int k = 0; k < 5; k++) all += groups.total[k];
    return all;
}
// The same for the rows of a block, of which the first threads have one each: eight threads that lie TEAMS apart add up sixteen pieces each,
// and then the first threads of the block those sums.
template <typename F, int TEAMS, typename E> __device__ inline E rows_taken_up(const E* of_rows, u64 apart, unsigned whole, E all, E* room) {
    using V = Vector<E, F::COLUMNS>;
    constexpr int ROWS = F::COLUMNS * TEAMS, LOT = 8 * ROWS;
    const unsigned lane = threadIdx.x / TEAMS;
    const int first = threadIdx.x % TEAMS * F::COLUMNS, row = threadIdx.x < ROWS ? threadIdx.x : 0;
    BlockSums<E> groups;
    unsigned turn = 0;
    for (unsigned group = 0; group * 16 < whole; group += 8, turn ^= LOT) {
        V sum = {};
        #pragma unroll 1
        for (unsigned piece = (group + lane) * 16, end = piece + 16; piece < end; piece += 4) {
            V found[4];
            #pragma unroll
            for (int l = 0; l < 4; l++) {
                if (piece + l < whole) found[l] = *reinterpret_cast<const V*>(of_rows + (piece + l) * apart + first);
            }
            #pragma unroll
            for (int l = 0; l < 4; l++) {
                #pragma unroll
                for (int k = 0; k < F::COLUMNS; k++) sum.at[k] += piece + l < whole ? found[l].at[k] : E();
            }
        }
        *reinterpret_cast<V*>(room + turn + lane * ROWS + first) = sum;
        __syncthreads();
        for (unsigned l = 0; l < 8 && (group + l) * 16 < whole; l++) {
            const E one = room[turn + l * ROWS + row];
            if ((group + l + 1) * 16 <= whole) groups.add(one, group + l + 1);
            else all += one;
        }
    }
    #pragma unroll
    for (int k = 0; k < 5; k++) all += groups.total[k];
    __syncthreads();
    return all;
}
// Add up what was left of a range, for all of a thread's rows.
template <int O, typename F, typename Walk> __device__ inline F taken_up(const Walk& walk, i64 terms) {
    using E = typename F::Element;
    using V = Vector<E, F::COLUMNS>;
    constexpr int ROWS = F::COLUMNS * Walk::TEAMS, LOT = 8 * ROWS;
    E* const room = shared_room<E, 2 * LOT>();
    const typename Walk::Place begin = walk.group * Walk::TEAMS;
    const unsigned blocks = unsigned((terms + 127) / 128), each = walk.each, whole = blocks / each;
    const int first = threadIdx.x % Walk::TEAMS * F::COLUMNS, row = threadIdx.x < ROWS ? threadIdx.x : 0;
    const E* const of_rows = left<O, E>(walk, walk.first) + u64(begin - walk.range * walk.along()) * F::COLUMNS;
    const u64 apart = u64(walk.along()) * F::COLUMNS;
    E all = blocks % each ? of_rows[whole * apart + row] + E() : E();
    if (whole > FEW_PIECES) all = rows_taken_up<F, Walk::TEAMS>(of_rows, apart, whole, all, room);
    else if (threadIdx.x < ROWS) all = row_taken_up(of_rows + row, apart, whole, all);
    if (threadIdx.x < ROWS) room[row] = all;
    __syncthreads();
    const V found = *reinterpret_cast<const V*>(room + first);
    __syncthreads();  // another sum may follow
    F sum;
    #pragma unroll
    for (int k = 0; k < F::COLUMNS; k++) sum.at[k] = found.at[k];
    return sum;
}

// The same of an operand of whose ranges several blocks add up pieces, in a launch that looks at ranges and leaves these or takes them up;
// of one that stands still nothing is left.
template <int O, typename F, typename T, typename Walk>
struct Split : Neighbours<F, T, Walk::COLUMNS, (Walk::MOVING >> O & 1), Walk::TEAM, Walk::TEAMS> {
    using Under = Neighbours<F, T, Walk::COLUMNS, (Walk::MOVING >> O & 1), Walk::TEAM, Walk::TEAMS>;
    Walk& walk;
    const T* p;

    __device__ Split(Walk& walk, const T* p, i64 stride) : Under(p + walk.at_row[O], stride), walk(walk), p(p) {}
    template <typename X> __device__ F sum(i64 lo, i64 hi, const X& x) {
        using All = typename Under::All;
        constexpr bool MOVES = Walk::MOVING >> O & 1;
        if (this->column > 0) return this->sums.at[this->column];
        if constexpr (MOVES && Walk::LEAVES) {
            if (!walk.looking) {
                leave<O, All>(walk, p, this->stride);
            } else if (walk.range < walk.ranges()) {
                const unsigned terms = hi - lo > 2 ? unsigned(hi - lo) : 0, blocks = (terms + 127) / 128;
                bounds<O>().low[walk.range] = unsigned(lo);
                bounds<O>().terms[walk.range] = terms;
                walk.blocks = walk.blocks < blocks ? blocks : walk.blocks;
            }
        } else if constexpr (MOVES) {
            this->sums = hi - lo > 2 ? taken_up<O, All>(walk, hi - lo) : ranged_sum<All>(lo, hi, x);
        } else if constexpr (Walk::TAKES) {
            this->sums = ranged_sum<All>(lo, hi, x);
        }
        return this->sums.at[0];
    }
};
template <typename F, int O, typename T, typename Walk> __device__ inline F ranged_sum(i64 lo, i64 hi, Split<O, F, T, Walk>& x) {
    return x.sum(lo, hi, x.terms([](i64 j) { return j; }));
}
template <typename F, int O, typename T, typename Walk, typename Order>
__device__ inline F ranged_sum(i64 lo, i64 hi, Split<O, F, T, Walk>& x, const Order& order) {
    return x.sum(lo, hi, x.terms([&order](i64 j) { return order(j); }));
}
template <int O, typename F, typename Walk, typename T> __device__ inline auto beside(Walk& walk, const T* p, int g) {
    const i64 stride = walk.rows.gather_stride[g];
    if constexpr (Walk::LEAVES || Walk::TAKES) return Split<O, F, T, Walk>(walk, p, stride);
    else return Neighbours<F, T, Walk::COLUMNS, (Walk::MOVING >> O & 1), Walk::TEAM, Walk::TEAMS>(p + walk.at_row[O], stride);
}
