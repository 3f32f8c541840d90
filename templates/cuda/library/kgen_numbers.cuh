// Numbers of kgen's kernels: their types, their conversions, vectors of them.
#pragma once

#ifndef __CUDACC_RTC__
#include <climits>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#endif

using i8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using i16 = short;
using i32 = int;
using i64 = long long;
using u32 = unsigned;
using u64 = unsigned long long;

// A set of operands that is not known before a kernel is launched: what it is given says which.
constexpr u64 GIVEN = ~u64(0);

// Of COUNT blocks that a multiprocessor is to have room for, how many where a thread needs more registers than these leave it: a sixth fewer,
// as often as EASED says, which kgen's runtime sets where the assembler would put registers in memory (kgen/runtime/spills.py).
#ifndef EASED
#define EASED 0
#endif
template <int COUNT, int TIMES = EASED> struct Eased : Eased<(COUNT > 1 ? COUNT - (COUNT + 5) / 6 : 1), TIMES - 1> {};
template <int COUNT> struct Eased<COUNT, 0> { static constexpr int BLOCKS = COUNT; };

// To float, rounding to odd: rounding that again, to 16 bits, gives what one rounding would.
__device__ inline float round_odd(double x) {
    float r = __double2float_rz(x);
    return double(r) == x ? r : __uint_as_float(__float_as_uint(r) | 1);
}
__device__ inline float round_odd(i64 x) {
    float r = __ll2float_rz(x);
    return __float2ll_rz(r) == x ? r : __uint_as_float(__float_as_uint(r) | 1);
}
__device__ inline float round_odd(u64 x) {
    float r = __ull2float_rz(x);
    return __float2ull_rz(r) == x ? r : __uint_as_float(__float_as_uint(r) | 1);
}

// The 16-bit floats: stored as bits, computed in float, rounded once, to nearest even.
struct f16 {
    unsigned short bits;

    f16() = default;
    __device__ explicit f16(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    __device__ explicit f16(double x) { asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x)); }
    __device__ operator float() const { float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits)); return x; }
};
struct bf16 {
    unsigned short bits;

    bf16() = default;
    __device__ explicit bf16(float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    __device__ explicit bf16(double x) : bf16(round_odd(x)) {}
    __device__ operator float() const { return __uint_as_float(unsigned(bits) << 16); }
};

// A value rounded to T, a float, as a cast by name does.
template <typename T> __device__ inline T to(float x) { return T(x); }
template <> __device__ inline bf16 to(float x) {  // two at a time: alone, as for a value that is stored, it takes four times as long
    unsigned two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(x), "f"(0.0f));
    bf16 rounded;
    rounded.bits = two >> 16;
    return rounded;
}
template <typename T> __device__ inline T to(double x) { return T(x); }
template <typename T> __device__ inline T to(i64 x) {
    if constexpr (sizeof(T) == 2) return T(round_odd(x));
    else return T(x);
}
template <typename T> __device__ inline T to(u64 x) {
    if constexpr (sizeof(T) == 2) return T(round_odd(x));
    else return T(x);
}

// What T is computed in: double for double, else float.
template <typename T> struct compute_of { using type = float; };
template <> struct compute_of<double> { using type = double; };
template <typename... T> using compute = decltype((typename compute_of<T>::type() + ...));

// LANES neighbours, moved by one instruction, or one value for all of them.
template <typename T, int LANES> struct alignas(LANES * sizeof(T)) Vector { T at[LANES]; };

// The k-th element of a vector; of two bf16 in a word each takes one instruction.
template <typename V> __device__ inline auto element(const V& v, int k) { return v.at[k]; }
template <int N> __device__ inline float element(const Vector<bf16, N>& v, int k) {
    if constexpr (N % 2) return v.at[k];
    unsigned word;
    memcpy(&word, &v.at[k / 2 * 2], 4);
    return __uint_as_float(k % 2 ? word & 0xffff0000u : word << 16);
}

#ifndef __CUDACC_RTC__
// The greater of two sizes.
constexpr int wider(int a, int b) { return a > b ? a : b; }
#endif
