// Orders of keys and reductions by them, by blocks that hold all of a row's in shared memory; and counts of keys.
#pragma once
#include "kgen_numbers.cuh"

// Keys and where they lie: of each row n of them, a step apart, which count below m, a number of so many bits.  `writes` has a bit for each
// thing that is asked for, `work` is for keys in
// their order.  The steps of values x and of results y are those over the same rows, and along one.
enum { ORDER, ORDERED, BEGIN, END };
struct Keys {
    unsigned* work;
    i64 all, m, step, x_step, y_step, size[8], steps[8], x_steps[8], y_steps[8];
    int n, bits, rank, writes;

    __device__ bool asks(int what) const { return writes >> what & 1; }
    __device__ bool has(i64 key) const { return key >= 0 && key < m; }
    __device__ i64 place(i64 row, const i64 (&along)[8]) const {
        i64 at = 0;
        #pragma unroll
        for (int d = 7; d >= 0; d--) {
            if (d >= rank) continue;
            at += row % size[d] * along[d];
            row /= size[d];
        }
        return at;
    }
};

// The keys of a block in their order, equal ones as they come: words W of a key and its position, in the last POSITION bits.  Passes over
// eight bits of the keys each, from the last ones on; a warp has 32 EACH neighbours, and ranks each among those alike before it.
template <typename W, int THREADS, int EACH> struct SortedKeys {
    static constexpr int WARPS = THREADS / 32, POSITION = 14, DIGITS = 256, MOST = THREADS * EACH;
    static_assert(MOST <= 1 << POSITION && THREADS % 32 == 0);
    W words[MOST];
    u16 counts[WARPS][DIGITS];
    unsigned before[DIGITS], of_warps[DIGITS / 32];

    __device__ i64 key(int i) const { return words[i] >> POSITION; }
    __device__ int position(int i) const { return int(words[i] & ((1 << POSITION) - 1)); }
    // Take a row's keys, those outside as m.
    __device__ void sort(const Keys& keys, const i64* from) {
        const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 32 * EACH + lane;
        u16* const mine = counts[threadIdx.x / 32];
        W own[EACH];
        #pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int i = first + 32 * e;
            const i64 key = i < keys.n ? from[i * keys.step] : keys.m;
            own[e] = W(keys.has(key) ? key : keys.m) << POSITION | W(i);
        }
        for (int bit = POSITION; bit < POSITION + keys.bits; bit += 8) {
            for (int d = lane; d < DIGITS; d += 32) mine[d] = 0;
            __syncwarp();
            u16 rank[EACH];
            #pragma unroll
            for (int e = 0; e < EACH; e++) {
                const unsigned digit = unsigned(own[e] >> bit) % DIGITS, alike = __match_any_sync(~0u, digit);
                const unsigned earlier = alike & ((1u << lane) - 1), seen = mine[digit];
                rank[e] = seen + __popc(earlier);
                __syncwarp();
                if (earlier == 0) mine[digit] = seen + __popc(alike);
                __syncwarp();
            }
            __syncthreads();
            begin_digits();
            #pragma unroll
            for (int e = 0; e < EACH; e++) {
                const unsigned digit = unsigned(own[e] >> bit) % DIGITS;
                words[before[digit] + mine[digit] + rank[e]] = own[e];
            }
            __syncthreads();
            #pragma unroll
            for (int e = 0; e < EACH; e++) own[e] = words[first + 32 * e];
        }
    }
    // Of how many each digit stands behind, and in it each warp's, out of how many each warp has.
    __device__ void begin_digits() {
        for (int first = 0; first < DIGITS; first += THREADS) {
            const int d = first + threadIdx.x;
            unsigned all = 0;
            if (d < DIGITS) {
                #pragma unroll 8
                for (int w = 0; w < WARPS; w++) {
                    const unsigned own = counts[w][d];
                    counts[w][d] = all;
                    all += own;
                }
            }
            unsigned until = all;
            #pragma unroll
            for (int by = 1; by < 32; by *= 2) {
                const unsigned other = __shfl_up_sync(~0u, until, by);
                if (threadIdx.x % 32 >= by) until += other;
            }
            if (d < DIGITS) before[d] = until - all;
            if (d < DIGITS && d % 32 == 31) of_warps[d / 32] = until;
        }
        __syncthreads();
        for (int d = threadIdx.x; d < DIGITS; d += THREADS) {
            unsigned sum = 0;
            #pragma unroll
            for (int w = 0; w < DIGITS / 32 - 1; w++) sum += w < d / 32 ? of_warps[w] : 0;
            before[d] += sum;
        }
        __syncthreads();
    }
    // How many of n keys are below one.
    __device__ int below(i64 one, int n) const {
        int low = 0;
        for (int high = n; low < high;) {
            const int middle = (low + high) / 2;
            if (key(middle) < one) low = middle + 1;
            else high = middle;
        }
        return low;
    }
};

// A row of keys for each block: their positions in their order, the keys in it, and where in it each key below m begins and ends, what of it
// is asked for.
template <typename W, int THREADS, int EACH>
__global__ void __launch_bounds__(THREADS)
sort_keys(const __grid_constant__ Keys keys, const i64* key, i64* order, i64* ordered, i64* begin, i64* end) {
    extern __shared__ __align__(128) unsigned char row_memory[];
    auto& sorted = *reinterpret_cast<SortedKeys<W, THREADS, EACH>*>(row_memory);
    const i64 row = blockIdx.x, first = row * keys.n;
    sorted.sort(keys, key + keys.place(row, keys.steps));
    for (int i = threadIdx.x; i < keys.n; i += THREADS) {
        if (keys.asks(ORDER)) order[first + i] = sorted.position(i);
        if (keys.asks(ORDERED)) ordered[first + i] = sorted.key(i);
    }
    if (!keys.asks(BEGIN) && !keys.asks(END)) return;
    if (keys.work) {  // of many keys another launch says where they begin
        for (int i = threadIdx.x; i < keys.n; i += THREADS) keys.work[i] = unsigned(sorted.key(i));
        return;
    }
    for (i64 k = threadIdx.x; k <= keys.m; k += THREADS) {
        const int at = sorted.below(k, keys.n);
        if (keys.asks(BEGIN) && k < keys.m) begin[k] = at;
        if (keys.asks(END) && k > 0) end[k - 1] = at;
    }
}

// Where each key below m begins and ends in an order that another launch left in `work`.
template <int THREADS> __global__ void __launch_bounds__(THREADS)
place_keys(const __grid_constant__ Keys keys, const i64*, i64*, i64*, i64* begin, i64* end) {
    const i64 k = i64(blockIdx.x) * THREADS + threadIdx.x;
    if (k > keys.m) return;
    int low = 0;
    for (int high = keys.n; low < high;) {
        const int middle = (low + high) / 2;
        if (keys.work[middle] < k) low = middle + 1;
        else high = middle;
    }
    if (keys.asks(BEGIN) && k < keys.m) begin[k] = low;
    if (keys.asks(END) && k > 0) end[k - 1] = low;
}

// How often each key below m occurs, as a range from 0 on: a launch that clears, and one whose blocks count, in shared memory first where
// they have room.
template <int THREADS> __global__ void __launch_bounds__(THREADS)
clear_counts(const __grid_constant__ Keys keys, const i64*, i64*, i64*, i64* begin, i64* end) {
    const i64 k = i64(blockIdx.x) * THREADS + threadIdx.x;
    if (k < keys.m) begin[k] = end[k] = 0;
}
template <int THREADS, bool SHARED> __global__ void __launch_bounds__(THREADS)
count_keys(const __grid_constant__ Keys keys, const i64* key, i64*, i64*, i64*, i64* end) {
    extern __shared__ __align__(128) unsigned char row_memory[];
    unsigned* const own = reinterpret_cast<unsigned*>(row_memory);
    u64* const counts = reinterpret_cast<u64*>(end);
    const auto count = [&](i64 found) {
        if (!keys.has(found)) return;
        if constexpr (SHARED) atomicAdd(own + found, 1u);
        else atomicAdd(counts + found, u64(1));
    };
    for (i64 k = threadIdx.x; SHARED && k < keys.m; k += THREADS) own[k] = 0;
    __syncthreads();
    constexpr int AHEAD = 8;
    const i64 apart = i64(gridDim.x) * THREADS;
    i64 i = i64(blockIdx.x) * THREADS + threadIdx.x;
    for (; i + (AHEAD - 1) * apart < keys.all; i += AHEAD * apart) {
        i64 found[AHEAD];
        #pragma unroll
        for (int l = 0; l < AHEAD; l++) found[l] = key[(i + l * apart) * keys.step];
        #pragma unroll
        for (int l = 0; l < AHEAD; l++) count(found[l]);
    }
    for (; i < keys.all; i += apart) count(key[i * keys.step]);
    __syncthreads();
    for (i64 k = threadIdx.x; SHARED && k < keys.m; k += THREADS) {
        if (own[k]) atomicAdd(counts + k, u64(own[k]));
    }
}

// Reductions of what stands beside each key, of a row for each block: of the values x of a row those whose key is k, in the order of their
// places, for every k below m.  In a table each key has where it begins.
enum { SUM, MAX, MIN };
template <typename W, int THREADS, int EACH, int KIND, typename F, typename X, typename Y>
__global__ void __launch_bounds__(THREADS)
reduce_keys(const __grid_constant__ Keys keys, const i64* key, i64*, i64*, i64*, i64*, const X* x, Y* y) {
    constexpr u16 NONE = 0xffff;
    extern __shared__ __align__(128) unsigned char row_memory[];
    auto& sorted = *reinterpret_cast<SortedKeys<W, THREADS, EACH>*>(row_memory);
    u16* const begins = reinterpret_cast<u16*>(row_memory + sizeof(sorted));
    for (i64 k = threadIdx.x; k < keys.m; k += THREADS) begins[k] = NONE;
    sorted.sort(keys, key + keys.place(blockIdx.x, keys.steps));
    for (int i = threadIdx.x; i < keys.n; i += THREADS) {
        const i64 own = sorted.key(i);
        if (own < keys.m && (i == 0 || sorted.key(i - 1) != own)) begins[own] = i;
    }
    __syncthreads();
    const X* const from = x + keys.place(blockIdx.x, keys.x_steps);
    Y* const to = y + keys.place(blockIdx.x, keys.y_steps);
    const auto term = [&](i64 j) { return F(from[sorted.position(int(j)) * keys.x_step]); };
    const auto reduced = [&](i64 k) {
        int lo = begins[k], hi = lo;
        if (lo != NONE) {
            do hi++;
            while (hi < keys.n && sorted.key(hi) == k);
        }
        if constexpr (KIND == SUM) return ranged_sum<F>(lo, hi, term);
        else if constexpr (KIND == MAX) return ranged_max<F>(lo, hi, term);
        else return ranged_min<F>(lo, hi, term);
    };
    struct alignas(sizeof(Y) * 4) Four { Y at[4]; };
    if (keys.y_step == 1 && keys.m % 4 == 0 && u64(to) % sizeof(Four) == 0) {
        for (i64 k = 4 * threadIdx.x; k < keys.m; k += 4 * THREADS) {
            Four found;
            #pragma unroll
            for (int l = 0; l < 4; l++) found.at[l] = Y(reduced(k + l));
            *reinterpret_cast<Four*>(to + k) = found;
        }
    } else {
        for (i64 k = threadIdx.x; k < keys.m; k += THREADS) to[k * keys.y_step] = Y(reduced(k));
    }
}
