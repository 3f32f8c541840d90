// Short rows that begin anywhere: a block's rows arrive in shared memory as the one piece of memory that they are, and leave from there.
#pragma once
#include "kgen_partials.cuh"

// Whether the copies that a block's threads began have arrived, for all of them.
__device__ inline void all_arrived() {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
}

// Which of a block's rows a team of TEAM threads takes. The teams of a warp take rows that lie TEAM apart: where a row's vectors are an odd number,
// their threads then ask different banks of shared memory, of which neighbouring rows of 33, 65 or 129 would share a few.
template <int TEAM, int THREADS> __device__ inline unsigned staggered() {
    constexpr unsigned WARPS = THREADS / 32, TEAMS = 32 / TEAM, APART = TEAM < int(WARPS) ? TEAM : WARPS;
    const unsigned warp = threadIdx.x / 32, team = threadIdx.x % 32 / TEAM;
    return (warp / APART * TEAMS + team) * APART + warp % APART;
}

// Where a thread's elements of a block's rows of operand O lie in shared memory.
template <typename Walk, int O, typename T> struct Stage {
    using Index = typename Walk::Place;
    static constexpr int VEC = Walk::LANES;
    const unsigned from;  // its first byte

    __device__ explicit Stage(Walk& walk) : from(walk.kept) { walk.kept += (walk.teams() * unsigned(walk.rows.n) * sizeof(T) + 15) / 16 * 16; }
    // The vector of this thread that begins with its row's element i, in the next row where it has none.
    __device__ Vector<T, VEC>& at(const Walk& walk, Index i) const {
        const Index own = walk.lane * VEC;  // from there it is a constant
        T* first = reinterpret_cast<T*>(Walk::room_at(from)) + (walk.own_row() * unsigned(walk.rows.n) + unsigned(own));
        return *reinterpret_cast<Vector<T, VEC>*>(first + Index(i - own));
    }
    // Which element of the operand is the block's first, and how many elements its rows have.
    __device__ static Index first(const Walk& walk) { return walk.group * walk.teams() * walk.rows.n; }
    __device__ static unsigned count(const Walk& walk) {
        const Index left = walk.rows.rows - walk.group * walk.teams(), teams = walk.teams();
        return unsigned((left < teams ? left : teams) * walk.rows.n);
    }
    static constexpr unsigned EACH = 16 / sizeof(T);  // elements that move at a time
};

// An operand that is read: from memory before a reading, and from shared memory once. Behind the last row are zeros.
template <typename Walk, int O, typename T> struct StagedInput : Stage<Walk, O, T> {
    using Own = Stage<Walk, O, T>;
    using Own::VEC, Own::EACH, typename Own::Index;
    static constexpr int HELD = 4;
    const T* p;
    bool held = false;
    int from_slot = 0;  // of those that a reading is at
    Vector<T, VEC> now[Walk::TAKEN];

    __device__ StagedInput(Walk& walk, const T* p) : Own(walk), p(p) {
        const T* start = p + Own::first(walk);
        T* own = reinterpret_cast<T*>(Walk::room_at(this->from));
        const unsigned count = Own::count(walk), whole = count / EACH;
        for (unsigned i = threadIdx.x; i < whole; i += walk.threads()) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(Walk::memory() + this->from + 16 * i), "l"(start + i * EACH) : "memory");
        }
        for (unsigned i = whole * EACH + threadIdx.x; i < walk.teams() * unsigned(walk.rows.n); i += walk.threads()) own[i] = i < count ? start[i] : T();
    }
    template <typename C> __device__ void fetch(const Walk&, const C&, int) {}
    __device__ void take(const Walk& walk, int v, int k) {
        if (!held) now[v] = this->at(walk, walk.vector(walk.lane, v) * VEC);
        if (v + 1 == Walk::TAKEN) held = true;
        from_slot = v - k;
    }
    __device__ void again(const Walk&, int v, int k) { from_slot = v - k; }
    __device__ auto one(int v, int k) const { return element(now[from_slot + v], k); }
    __device__ const Vector<T, VEC>* vectors() const { return now + from_slot; }
    __device__ const Vector<T, VEC>& values(int v) const { return now[from_slot + v]; }
    // Another vector in the place of the v-th, for the readings that follow.
    __device__ void replace(const Walk&, int v, int, const Vector<T, VEC>& by) { now[v] = by; }
    // Such rows are whole vectors.
    __device__ T one_loose(const Walk&, int) const { return T(); }
    __device__ T one_at(const Walk& walk, Index i) const { return walk.template at<O>(p)[i]; }  // asked for before the others have arrived
    template <typename C> __device__ void put(const Walk&, const C&, int) {}
    __device__ void put_loose(const Walk&, int) {}
};

// An operand that is written: to memory behind a reading.
template <typename Walk, int O, typename T> struct StagedOutput : Stage<Walk, O, T> {
    using Own = Stage<Walk, O, T>;
    using Own::VEC, Own::EACH, typename Own::Index;
    T* p;
    Vector<T, VEC> now[Walk::TAKEN];
    T now_loose;

    __device__ StagedOutput(Walk& walk, T* p) : Own(walk), p(p) {}
    template <typename C> __device__ void fetch(const Walk&, const C&, int) {}
    __device__ void take(const Walk&, int, int) {}
    __device__ T& one(int v, int k) { return now[v].at[k]; }
    template <typename C> __device__ void put(const Walk& walk, const C& c, int v) { this->at(walk, c.first) = now[v]; }
    __device__ T& one_loose(const Walk&, int) { return now_loose; }
    __device__ T& one_at(const Walk&, Index) { return now_loose; }
    __device__ void put_loose(const Walk&, int) {}
    // What all threads have put, to memory.
    __device__ void leave(const Walk& walk) const {
        T* start = p + Own::first(walk);
        const T* own = reinterpret_cast<const T*>(Walk::room_at(this->from));
        const unsigned count = Own::count(walk), whole = count / EACH;
        for (unsigned i = threadIdx.x; i < whole; i += walk.threads()) {
            reinterpret_cast<Vector<T, EACH>*>(start)[i] = reinterpret_cast<const Vector<T, EACH>*>(own)[i];
        }
        for (unsigned i = whole * EACH + threadIdx.x; i < count; i += walk.threads()) start[i] = own[i];
    }
};
template <typename Walk, typename In> __device__ inline auto leave(const Walk& walk, const In& in, int) -> decltype(in.leave(walk)) { return in.leave(walk); }
template <typename Walk, typename In> __device__ inline void leave(const Walk&, const In&, long) {}
template <typename Walk, typename In> __device__ constexpr auto leaves(const Walk* walk, const In* in) -> decltype(in->leave(*walk), true) { return true; }
template <typename Walk> __device__ constexpr bool leaves(const Walk*, const void*) { return false; }
// What a reading's outputs have in shared memory goes to memory.
template <typename Walk, typename... In> __device__ inline void all_leave(const Walk& walk, const In&... in) {
    if constexpr ((leaves(static_cast<const Walk*>(nullptr), static_cast<const In*>(nullptr)) || ...)) {
        __syncthreads();
        (leave(walk, in, 0), ...);
    }
}
