// Rows of one element each that are sums over ranges: a thread may take several that lie side by side.
#pragma once
#include "kgen_aside.cuh"

// A walk of such rows, of whose ranges teams add up parts.
template <typename Walk, int COLUMNS_, u64 MOVES> struct Ranges : Aside<Walk, COLUMNS_, MOVES> {
    using Under = Aside<Walk, COLUMNS_, MOVES>;
    static constexpr int COLUMNS = COLUMNS_, TEAM = Under::THREADS / Under::TEAMS, SHARING = by_lanes<TEAM, Under::TEAMS> ? 768 : 512;
    // Whether blocks that share a range leave what they have added up of its pieces; or whether that is taken up.
    static constexpr bool LEAVES = Under::stops(0), TAKES = Under::stops(1);
    static constexpr int BLOCKS = COLUMNS == 1 ? Under::BLOCKS : TEAM > 1 ? SHARING / Under::THREADS : TAKES ? 2 : 5;

    __device__ explicit Ranges(const typename Under::Layout& rows) : Under(rows) {}
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
    __device__ static All at(const T* p) {
        All found;
        if constexpr (MOVES && COLUMNS > 1) {
            const auto v = *reinterpret_cast<const Vector<T, COLUMNS>*>(p);
            #pragma unroll
            for (int k = 0; k < COLUMNS; k++) found.at[k] = F(element(v, k));
        } else {
            const F one = F(*p);
            #pragma unroll
            for (int k = 0; k < COLUMNS; k++) found.at[k] = one;
        }
        return found;
    }
};
template <typename F, int TEAM, int TEAMS, typename X> __device__ F shared_sum(i64 lo, i64 hi, const X& x);
template <typename F, typename T, int COLUMNS, bool MOVES, int TEAM, int TEAMS> __device__ inline F ranged_sum(i64 lo, i64 hi, Neighbours<F, T, COLUMNS, MOVES, TEAM, TEAMS>& x) {
    if (x.column == 0) {
        const T* first = x.first;
        const i64 stride = x.stride;
        x.sums = shared_sum<Side<F, COLUMNS>, TEAM, TEAMS>(lo, hi, [=](i64 j) { return Neighbours<F, T, COLUMNS, MOVES, TEAM, TEAMS>::at(first + j * stride); });
    }
    return x.sums.at[x.column];
}
template <typename F, typename T, int COLUMNS, bool MOVES, int TEAM, int TEAMS, typename Order>
__device__ inline F ranged_sum(i64 lo, i64 hi, Neighbours<F, T, COLUMNS, MOVES, TEAM, TEAMS>& x, const Order& order) {
    if (x.column == 0) {
        const T* first = x.first;
        const i64 stride = x.stride;
        x.sums = shared_sum<Side<F, COLUMNS>, TEAM, TEAMS>(lo, hi, [=, &order](i64 j) { return Neighbours<F, T, COLUMNS, MOVES, TEAM, TEAMS>::at(first + order(j) * stride); });
    }
    return x.sums.at[x.column];
}

// A long range is pieces of so many blocks of terms: of one, or of sixteen where there is no room for as many.
template <typename Walk> __device__ inline i64 blocks_of_piece(const Walk& walk, i64 lo, i64 hi) {
    return hi - lo <= 128 * i64(walk.rows.slot) ? 1 : 16;
}
// What is left of a piece, for all rows, of operand O.
template <int O, typename E, typename Walk> __device__ inline E* left(const Walk& walk, i64 piece) {
    int before = 0;
    #pragma unroll
    for (int k = 0; k < O; k++) before += Walk::MOVING >> k & 1;
    return reinterpret_cast<E*>(walk.rows.work) + (u64(before) * walk.rows.slot + piece) * walk.rows.rows * Walk::COLUMNS;
}
// Leave the sums of pieces: the blocks that share a range take one after the other, in turns.
template <int O, typename F, typename Walk, typename X> __device__ inline void leave(const Walk& walk, i64 lo, i64 hi, const X& x) {
    using E = typename F::Element;
    constexpr int ROWS = F::COLUMNS * Walk::TEAMS, LOT = 8 * ROWS;
    E* const room = shared_room<E, 2 * LOT>();
    E* lanes = room;
    const i64 size = 128 * blocks_of_piece(walk, lo, hi);
    for (i64 piece = walk.segment; lo + size * piece < hi; piece += walk.sharing) {
        const i64 begin = lo + size * piece, end = hi - begin < size ? hi : begin + size;
        E sum = E();
        for (i64 j = begin; j < end; j += 128) {
            sum += lanes_block<F, Walk::TEAMS>(j, end - j < 128 ? end : j + 128, x, lanes);
            lanes = lanes == room ? room + LOT : room;
        }
        if (threadIdx.x < ROWS) left<O, E>(walk, piece)[u64(walk.group) * ROWS + threadIdx.x] = sum;
    }
    __syncthreads();  // another sum may follow
}
// Add up what was left, in the order in which one thread would: sixteen sums are on their way at a time.
template <int O, typename F, typename Walk> __device__ inline F taken_up(const Walk& walk, i64 lo, i64 hi) {
    using V = Vector<typename F::Element, F::COLUMNS>;
    const i64 blocks = (hi - lo + 127) / 128, each = blocks_of_piece(walk, lo, hi), pieces = each == 1 ? blocks : (blocks + 15) / 16;
    BlockSums<F> sums;
    for (i64 first = 0; first < pieces; first += 16) {
        V found[16];
        #pragma unroll
        for (int l = 0; l < 16; l++) {
            const i64 piece = first + l < pieces ? first + l : first;
            found[l] = reinterpret_cast<const V*>(left<O, typename F::Element>(walk, piece))[walk.row];
        }
        #pragma unroll
        for (int l = 0; l < 16; l++) {
            F sum;
            #pragma unroll
            for (int k = 0; k < F::COLUMNS; k++) sum.at[k] = found[l].at[k];
            const i64 until = each * (first + l + 1);
            if (first + l < pieces) sums.add(sum, until < blocks ? until : blocks);
        }
    }
    return sums.all();
}

// The same of an operand of whose ranges several blocks add up pieces, in a launch that leaves these or takes them up; of one that stands
// still nothing is left.
template <int O, typename F, typename T, typename Walk>
struct Split : Neighbours<F, T, Walk::COLUMNS, (Walk::MOVING >> O & 1), Walk::TEAM, Walk::TEAMS> {
    using Under = Neighbours<F, T, Walk::COLUMNS, (Walk::MOVING >> O & 1), Walk::TEAM, Walk::TEAMS>;
    const Walk& walk;

    __device__ Split(const Walk& walk, const T* first, i64 stride) : Under(first, stride), walk(walk) {}
    template <typename X> __device__ F sum(i64 lo, i64 hi, const X& x) {
        using All = typename Under::All;
        constexpr bool MOVES = Walk::MOVING >> O & 1;
        if (this->column > 0) return this->sums.at[this->column];
        if constexpr (MOVES && Walk::LEAVES) {
            if (hi - lo > 2) leave<O, All>(walk, lo, hi, x);
        } else if constexpr (MOVES) {
            this->sums = hi - lo > 2 ? taken_up<O, All>(walk, lo, hi) : ranged_sum<All>(lo, hi, x);
        } else if constexpr (Walk::TAKES) {
            this->sums = ranged_sum<All>(lo, hi, x);
        }
        return this->sums.at[0];
    }
};
template <typename F, int O, typename T, typename Walk> __device__ inline F ranged_sum(i64 lo, i64 hi, Split<O, F, T, Walk>& x) {
    return x.sum(lo, hi, [&](i64 j) { return x.at(x.first + j * x.stride); });
}
template <typename F, int O, typename T, typename Walk, typename Order>
__device__ inline F ranged_sum(i64 lo, i64 hi, Split<O, F, T, Walk>& x, const Order& order) {
    return x.sum(lo, hi, [&](i64 j) { return x.at(x.first + order(j) * x.stride); });
}
template <int O, typename F, typename Walk, typename T> __device__ inline auto beside(const Walk& walk, const T* p, int g) {
    const T* first = p + walk.at_row[O];
    const i64 stride = walk.rows.gather_stride[g];
    if constexpr (Walk::LEAVES || Walk::TAKES) return Split<O, F, T, Walk>(walk, first, stride);
    else return Neighbours<F, T, Walk::COLUMNS, (Walk::MOVING >> O & 1), Walk::TEAM, Walk::TEAMS>(first, stride);
}
