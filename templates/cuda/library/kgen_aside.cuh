// Rows of one element each that lie side by side: a thread may take several.
#pragma once
#include "kgen_rows.cuh"

// A walk of which each thread takes COLUMNS rows side by side, one after the other; a bit of MOVES for each operand that moves by one element
// from one to the next.
template <typename Under, int COLUMNS_, u64 MOVES> struct Aside : Under {
    static constexpr int COLUMNS = COLUMNS_;
    static constexpr u64 MOVING = MOVES;
    int column = 0;

    __device__ explicit Aside(const typename Under::Layout& rows) : Under(rows) {}
    template <int O, typename T> __device__ T* at(T* p) const { return Under::template at<O>(p) + (MOVES >> O & 1 ? column : 0); }
    // What all of its rows have of an operand, read together; and what the one at hand has.
    template <int O, typename T> __device__ auto side(const T* p) const {
        return *reinterpret_cast<const Vector<T, (MOVES >> O & 1) ? COLUMNS : 1>*>(Under::template at<O>(p));
    }
    template <typename T, int N> __device__ auto mine(const Vector<T, N>& of) const { return element(of, N > 1 ? column : 0); }
    template <int O> __device__ i64 row_index() const { return Under::template row_index<O>() + (MOVES >> O & 1 ? column : 0); }
    template <int O, typename T> __device__ T gathered(const T* p, int g, i64 place) const {
        return Under::template gathered<O>(p + (MOVES >> O & 1 ? column : 0), g, place);
    }
    template <int O, typename T> __device__ T within(const T* p, int g, i64 place) const {
        return Under::template within<O>(p + (MOVES >> O & 1 ? column : 0), g, place);
    }
};

// What an operand has at a place. Where it moves from row to row, it is read for all of a thread's rows together, and once while the place is
// the same.
template <typename F, int O, typename T, typename Walk> struct Looked {
    static constexpr int COLUMNS = Walk::MOVING >> O & 1 ? Walk::COLUMNS : 1;
    const Walk& walk;
    const T* p;
    int g;
    i64 last = -1;
    Vector<T, COLUMNS> all = {};

    __device__ F operator()(i64 place) {
        if constexpr (COLUMNS == 1) {
            return F(walk.template gathered<O>(p, g, place));
        } else {
            if (place < 0 || place >= walk.rows.gather_size[g]) return F(T());
            if (place != last) all = *reinterpret_cast<const Vector<T, COLUMNS>*>(p + walk.at_row[O] + place * walk.rows.gather_stride[g]);
            last = place;
            return F(element(all, walk.column));
        }
    }
};
template <int O, typename F, typename Walk, typename T> __device__ inline Looked<F, O, T, Walk> looked(const Walk& walk, const T* p, int g) {
    return {walk, p, g};
}

// What is stored of a thread's rows.
template <typename Walk, int O, typename T> struct Kept {
    T* p;
    Vector<T, Walk::COLUMNS> at;

    __device__ void store(const Walk& walk) const {
        if (walk.leader()) *reinterpret_cast<Vector<T, Walk::COLUMNS>*>(p + walk.at_row[O]) = at;
    }
};
