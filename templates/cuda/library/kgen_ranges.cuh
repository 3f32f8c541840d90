// Rows of one element each that are sums over ranges: a thread may take several that lie side by side.
#pragma once
#include "kgen_rows.cuh"

// A walk of which each thread takes COLUMNS rows side by side, one after the other; a bit of MOVES for each operand that moves by one element
// from one to the next.
template <typename Under, int COLUMNS_, u64 MOVES> struct Aside : Under {
    static constexpr int COLUMNS = COLUMNS_, TEAM = Under::THREADS / Under::TEAMS, SHARING = Under::TEAMS == 16 ? 768 : 512;
    static constexpr int BLOCKS = COLUMNS == 1 ? Under::BLOCKS : TEAM > 1 ? SHARING / Under::THREADS : 5;
    static constexpr u64 MOVING = MOVES;
    int column = 0;

    __device__ explicit Aside(const typename Under::Layout& rows) : Under(rows) {}
    template <int O, typename T> __device__ T* at(T* p) const { return Under::template at<O>(p) + (MOVES >> O & 1 ? column : 0); }
    template <int O> __device__ i64 row_index() const { return Under::template row_index<O>() + (MOVES >> O & 1 ? column : 0); }
    template <int O, typename T> __device__ T gathered(const T* p, int g, i64 place) const {
        return Under::template gathered<O>(p + (MOVES >> O & 1 ? column : 0), g, place);
    }
    template <int O, typename T> __device__ T within(const T* p, int g, i64 place) const {
        return Under::template within<O>(p + (MOVES >> O & 1 ? column : 0), g, place);
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
template <int O, typename F, typename Walk, typename T> __device__ inline auto beside(const Walk& walk, const T* p, int g) {
    return Neighbours<F, T, Walk::COLUMNS, (Walk::MOVING >> O & 1), Walk::TEAM, Walk::TEAMS>(p + walk.at_row[O], walk.rows.gather_stride[g]);
}
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

// What is stored of a thread's rows.
template <typename Walk, int O, typename T> struct Kept {
    T* p;
    Vector<T, Walk::COLUMNS> at;

    __device__ void store(const Walk& walk) const {
        if (walk.leader()) *reinterpret_cast<Vector<T, Walk::COLUMNS>*>(p + walk.at_row[O]) = at;
    }
};
