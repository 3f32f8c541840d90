// The sum of x(j) from lo up to hi, at most 128 terms, in eight lanes.
template <typename F, typename X> __device__ inline F block_sum(i64 lo, i64 hi, const X& x) {
    F lanes[8] = {};
    i64 j = lo;
    for (; hi - j >= 8; j += 8) {
        #pragma unroll
        for (int l = 0; l < 8; l++) lanes[l] += x(j + l);
    }
    if (j < hi) {  // the last are read without branches too, or one would wait for the other
        #pragma unroll
        for (int l = 0; l < 7; l++) {
            const F one = x(hi - j > l ? j + l : j);
            if (hi - j > l) lanes[l] += one;
        }
    }
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}
// The sums of blocks, one after the other, added up sixteen by sixteen.
template <typename F> struct BlockSums {
    F total[5] = {};

    __device__ void add(const F& sum, i64 blocks) {  // with this one there are as many
        total[0] += sum;
        #pragma unroll
        for (int k = 0; k < 4; k++) {
            if (blocks % (i64(16) << 4 * k) == 0) {
                total[k + 1] += total[k];
                total[k] = F();
            }
        }
    }
    __device__ F all() const { return total[0] + total[1] + total[2] + total[3] + total[4]; }
};
// The sum of x(j), or of x(order(j)), from lo up to hi: by blocks of 128 terms.
// The order of the additions depends on the number of terms alone.
template <typename F, typename X> __device__ inline F ranged_sum(i64 lo, i64 hi, const X& x) {
    if (hi - lo <= 2) return lo < hi ? (hi - lo == 2 ? x(lo) + x(lo + 1) : x(lo)) + F() : F();  // as most are, where keys are many
    BlockSums<F> sums;
    for (i64 j = lo, blocks = 1; j < hi; j += 128, blocks++) sums.add(block_sum<F>(j, hi - j < 128 ? hi : j + 128, x), blocks);
    return sums.all();
}
template <typename F, typename X, typename Order> __device__ inline F ranged_sum(i64 lo, i64 hi, const X& x, const Order& order) {
    return ranged_sum<F>(lo, hi, [&](i64 j) { return x(order(j)); });
}
template <typename F, typename X, typename Begin, typename Until>
__device__ inline F ranged_sum(i64 lo, i64 hi, const X& x, const Begin& begin, const Until& until, i64 at) {
    return ranged_sum<F>(lo, hi, [&](i64 j) { return begin(j) <= at && at < until(j) ? x(j) : F(); });
}
// The sum of every eighth term from x(j) on, up to hi: eight of them on their way, of the last four.
template <typename F, typename X> __device__ inline F lane_sum(i64 j, i64 hi, const X& x) {
    F sum = F();
    for (; hi - j > 56; j += 64) {
        #pragma unroll
        for (int l = 0; l < 8; l++) sum += x(j + 8 * l);
    }
    for (; j < hi; j += 32) {
        #pragma unroll
        for (int l = 0; l < 4; l++) {
            const F one = x(hi - j > 8 * l ? j + 8 * l : j);
            if (hi - j > 8 * l) sum += one;
        }
    }
    return sum;
}
// Whether the eight threads of a block that share a row take a lane of each block of terms each.
template <int TEAM, int TEAMS> constexpr bool by_lanes = TEAM == 8 && TEAMS == 16;
// Shared memory for N values, the same for all sums of a kernel.
template <typename E, int N> __device__ inline E* shared_room() {
    alignas(32) __shared__ E room[N];
    return room;
}
// The sums of a block of terms, of each of the rows that the first threads of a block have one of, from the sums of lanes: eight threads that
// lie TEAMS apart, with F::COLUMNS rows, have a lane each, which they leave in shared memory.
template <typename F, int TEAMS> __device__ inline auto from_lanes(const F& sum, typename F::Element* lanes) {
    constexpr int ROWS = F::COLUMNS * TEAMS;
    const int lane = threadIdx.x / TEAMS, first = threadIdx.x % TEAMS * F::COLUMNS, row = threadIdx.x;
    Vector<typename F::Element, F::COLUMNS> of_lane;
    #pragma unroll
    for (int k = 0; k < F::COLUMNS; k++) of_lane.at[k] = sum.at[k];
    *reinterpret_cast<decltype(of_lane)*>(lanes + lane * ROWS + first) = of_lane;
    __syncthreads();
    const typename F::Element* l = lanes + (row < ROWS ? row : 0);
    return ((l[0] + l[ROWS]) + (l[2 * ROWS] + l[3 * ROWS])) + ((l[4 * ROWS] + l[5 * ROWS]) + (l[6 * ROWS] + l[7 * ROWS]));
}
// The same sums, in the same order, by such threads of a block whose threads all have the same range.
template <typename F, int TEAMS, typename X> __device__ inline F lanes_sum(i64 lo, i64 hi, const X& x) {
    if (hi - lo <= 2) return ranged_sum<F>(lo, hi, x);
    using E = typename F::Element;
    using V = Vector<E, F::COLUMNS>;
    constexpr int ROWS = F::COLUMNS * TEAMS, LOT = 8 * ROWS;
    E* const room = shared_room<E, 2 * LOT>();  // two lots of lanes, so that one barrier is enough
    E* lanes = room;
    const int first = threadIdx.x % TEAMS * F::COLUMNS, row = threadIdx.x, lane = threadIdx.x / TEAMS;
    typename X::Term terms[8];  // of this lane, of half a block: on their way while those before them are added up
    #pragma unroll
    for (int l = 0; l < 8; l++) {
        if (hi - lo > lane + 8 * l) terms[l] = x.term(lo + lane + 8 * l);
    }
    F sum;
    BlockSums<E> sums;
    i64 blocks = 0;
    for (i64 j = lo; j < hi; j += 64) {
        const int left = (hi - j < 128 ? int(hi - j) : 128) - lane;
        #pragma unroll
        for (int l = 0; l < 8; l++) {
            if (left > 8 * l) sum += x.value(terms[l]);
            if (left > 64 + 8 * l) terms[l] = x.term(j + 64 + lane + 8 * l);
        }
        if ((j - lo) % 128 == 0 && hi - j > 64) continue;
        sums.add(from_lanes<F, TEAMS>(sum, lanes), ++blocks);
        sum = F();
        lanes = lanes == room ? room + LOT : room;
    }
    if (row < ROWS) lanes[row] = sums.all();  // the lot that nobody reads
    __syncthreads();
    const V all = *reinterpret_cast<const V*>(lanes + first);
    __syncthreads();  // another sum may follow
    F found;
    #pragma unroll
    for (int k = 0; k < F::COLUMNS; k++) found.at[k] = all.at[k];
    return found;
}
// The same sum, in the same order, by TEAM threads that lie TEAMS apart, of a block whose threads all have the same range. Where eight of a
// warp have a row, they take a block of terms, a lane of it each, and the first of them have the sum; where eight of a block have it, they
// take a lane each too; else each takes a block of terms.
template <typename F, int TEAM, int TEAMS, typename X> __device__ inline F shared_sum(i64 lo, i64 hi, const X& x) {
    if constexpr (TEAM == 1) {
        return ranged_sum<F>(lo, hi, x);
    } else if constexpr (by_lanes<TEAM, TEAMS>) {
        return lanes_sum<F, TEAMS>(lo, hi, x);
    } else {
        if (hi - lo <= 2) return ranged_sum<F>(lo, hi, x);
        constexpr bool LANES = TEAMS == 4 && TEAM % 8 == 0;
        constexpr int BLOCKS = LANES ? TEAM / 8 : TEAM;
        __shared__ F each[2][BLOCKS][TEAMS];  // two, so that one barrier is enough
        const int own = LANES ? threadIdx.x / 32 : threadIdx.x / TEAMS, team = threadIdx.x % TEAMS, lane = LANES ? threadIdx.x / TEAMS % 8 : 0;
        BlockSums<F> sums;
        int turn = 0;
        for (i64 first = 0; lo + 128 * first < hi; first += BLOCKS, turn ^= 1) {
            const i64 begin = lo + 128 * (first + own), end = hi - begin < 128 ? hi : begin + 128;
            F sum = F();
            if constexpr (LANES) {
                sum = lane_sum<F>(begin + lane, end, x);
                #pragma unroll
                for (int bit = TEAMS; bit < 32; bit *= 2) sum += sum.opposite(bit);
            } else {
                if (begin < hi) sum = block_sum<F>(begin, end, x);
            }
            if (lane == 0) each[turn][own][team] = sum;
            __syncthreads();
            for (int l = 0; (!LANES || own == 0) && l < BLOCKS && lo + 128 * (first + l) < hi; l++) sums.add(each[turn][l][team], first + l + 1);
        }
        __syncthreads();  // another sum may follow
        return sums.all();
    }
}
