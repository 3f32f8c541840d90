"""Emitted CUDA kernels run on the CPU: the device's source as NVRTC gets it, built by g++, each thread of a block a fiber.

Launches are planned and their arguments packed by `kgen.runtime.nvrtc`, as for a GPU.  Threads run one after another, a warp as far as
it comes before the next, and change at shuffles and barriers alone: what should wait at a barrier that is not there reads what is not
yet written.  Copies to shared memory happen when they are waited for.  A few instructions are written in C++; of clusters there are those of
one block, which tells itself its parts.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kgen import check, syntax
from kgen.runtime import arguments, keys, nvrtc, rows
from kgen.runtime.nvrtc_lists import ListLauncher
from tests.headers import LINKER

#: What is written in C++.  Functions are inline, and there is nothing of the standard library's that g++ would build: of functions that
#: are only static, used or not, and of vectors and maps it made two thirds of a small kernel's build each time.
SHIM = r"""
#define __CUDACC_RTC__  // the host's parts are not here
#include <setjmp.h>
#include <ucontext.h>
#include <math.h>  // floats' own functions stand in the global namespace, as on a GPU
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>
using std::isfinite;
using std::isnan;
using std::sqrt;
#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
#define __noinline__
#define __grid_constant__
struct Dim { unsigned x; };
struct uint4 { unsigned x, y, z, w; };
static inline uint4 __ldcs(const uint4* p) { return *p; }
static Dim blockIdx, threadIdx, blockDim, gridDim;
// Tickets: blocks run one after the other, and the first would take them all; others have taken those that it is not given.
extern "C" unsigned most_tickets;
unsigned most_tickets = ~0u;
static unsigned tickets_given;
static inline unsigned atomicAdd(unsigned* p, unsigned by) {
    if (tickets_given++ >= most_tickets) return 0x7fffffff;
    const unsigned old = *p;
    *p += by;
    return old;
}
static inline unsigned long long atomicAdd(unsigned long long* p, unsigned long long by) {
    const unsigned long long old = *p;
    *p += by;
    return old;
}
// How many threads have waited for the launch before.
extern "C" unsigned waits;
unsigned waits;
alignas(128) static unsigned char row_memory[1 << 18];
extern "C" void* rows_memory() { return row_memory; }

struct Copy { unsigned to; const void* from; unsigned bytes, group; };
struct Fiber {
    char* stack = nullptr;
    bool started = false, done = true;
    jmp_buf place;
    unsigned word, group = 0;
    Copy* copies = nullptr;
    unsigned copied = 0, room = 0;
};
static Fiber fibers[1024];
static jmp_buf scheduler;
struct Barrier { unsigned arrived = 0, turn = 0; };
static Barrier block, warps[32];
static bool moved;
static inline void pause() { if (!_setjmp(fibers[threadIdx.x].place)) _longjmp(scheduler, 1); }  // swapcontext asks for signals each time
static inline void wait(Barrier& b, unsigned threads) {
    const unsigned turn = b.turn;
    moved = true;
    if (++b.arrived == threads) b.arrived = 0, b.turn++;
    while (b.turn == turn) pause();
    moved = true;
}
static inline void __syncthreads() { wait(block, blockDim.x); }
static inline void __threadfence() {}
static inline void together(unsigned me) { wait(warps[me / 32], blockDim.x < 32 ? blockDim.x : 32); }  // a small block is a part of a warp
static inline void __syncwarp() { together(threadIdx.x); }
static inline unsigned __shfl_xor_sync(unsigned, unsigned word, int apart) {
    const unsigned me = threadIdx.x;
    fibers[me].word = word;
    together(me);
    const unsigned found = fibers[me ^ apart].word;
    together(me);
    return found;
}
static inline unsigned shuffled(unsigned word, unsigned from) {
    const unsigned me = threadIdx.x;
    fibers[me].word = word;
    together(me);
    const unsigned found = fibers[from].word;
    together(me);
    return found;
}
static inline unsigned __shfl_up_sync(unsigned, unsigned word, unsigned by, unsigned width = 32) {
    const unsigned me = threadIdx.x;
    return shuffled(word, me % width < by ? me : me - by);
}
static inline unsigned __shfl_sync(unsigned, unsigned word, unsigned lane, unsigned width = 32) {
    return shuffled(word, threadIdx.x / width * width + lane);
}
static inline unsigned __match_any_sync(unsigned, unsigned word) {
    const unsigned me = threadIdx.x;
    fibers[me].word = word;
    together(me);
    unsigned alike = 0;
    for (unsigned l = 0; l < 32; l++) alike |= unsigned(fibers[me / 32 * 32 + l].word == word) << l;
    together(me);
    return alike;
}
static inline unsigned __activemask() { return ~0u; }
static inline bool __all_sync(unsigned, bool holds) { return holds; }  // of one thread: those of a warp come to it one by one
static inline int __popc(unsigned u) { return __builtin_popcount(u); }
static inline unsigned __cvta_generic_to_shared(const void* p) { return unsigned((const unsigned char*)p - row_memory); }
static inline unsigned char* shared_at(unsigned place) { return row_memory + int(place); }  // a kernel's own arrays stand before or behind
static inline void copy_later(unsigned to, const void* from, unsigned bytes = 16) {
    Fiber& f = fibers[threadIdx.x];
    if (f.copied == f.room) f.copies = (Copy*)realloc(f.copies, (f.room = 2 * f.room + 16) * sizeof(Copy));
    f.copies[f.copied++] = {to, from, bytes, f.group};
}
static inline void commit_copies() { fibers[threadIdx.x].group++; }
// Copies all but those of the last groups.
static inline void copy_now(unsigned left = 0) {
    Fiber& f = fibers[threadIdx.x];
    unsigned later = 0;
    for (unsigned k = 0; k < f.copied; k++) {
        const Copy c = f.copies[k];
        if (left > 0 && c.group + left >= f.group) f.copies[later++] = c;
        else memcpy(shared_at(c.to), c.from, c.bytes);
    }
    f.copied = later;
}
// The barriers at which a cluster's blocks wait for what is sent to them: for so many bytes, once these have been announced.
#define __CUDA_ARCH__ 900
struct Mailbox { unsigned at, phase, announced; int bytes; };
static Mailbox mailboxes[256];
static unsigned mailboxes_used;
static inline Mailbox& mailbox(unsigned at) {
    unsigned k = 0;
    while (k < mailboxes_used && mailboxes[k].at != at) k++;
    if (k == 256) abort();
    if (k == mailboxes_used) mailboxes[mailboxes_used++] = {at, 0, 0, 0};
    return mailboxes[k];
}
static inline void opened(unsigned at) { mailbox(at) = {at, 0, 0, 0}; }
static inline void settle(Mailbox& box) {
    if (box.announced == 1 && box.bytes == 0) box.announced = 0, box.phase++, moved = true;
}
static inline void announce(unsigned at, unsigned bytes) { mailbox(at).announced++, mailbox(at).bytes += bytes, settle(mailbox(at)); }
static inline void post(unsigned there, unsigned word, unsigned at) {
    memcpy(shared_at(there), &word, 4);
    mailbox(at).bytes -= 4, settle(mailbox(at));
}
static inline void collect(unsigned at, unsigned parity) {
    while (mailbox(at).phase % 2 == parity) pause();
    moved = true;
}
static inline unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
static inline float __double2float_rz(double x) {
    const float y = static_cast<float>(x);
    return fabs(y) > fabs(x) ? nextafterf(y, 0) : y;
}
static inline float __ll2float_rz(long long x) {
    const float y = static_cast<float>(x);
    return fabsl(y) > fabsl(static_cast<long double>(x)) ? nextafterf(y, 0) : y;
}
static inline float __ull2float_rz(unsigned long long x) {
    const float y = static_cast<float>(x);
    return y > static_cast<long double>(x) ? nextafterf(y, 0) : y;
}
template <typename I> static I cut(double x) {
    const double low = double(std::numeric_limits<I>::min()), end = double(std::numeric_limits<I>::max() / 2 + 1) * 2;
    return x != x ? 0 : x <= low ? std::numeric_limits<I>::min() : x >= end ? std::numeric_limits<I>::max() : I(x);
}
static inline long long __float2ll_rz(float x) { return cut<long long>(x); }
static inline int __float2int_rz(float x) { return cut<int>(x); }
static inline unsigned __float2uint_rz(float x) { return cut<unsigned>(x); }
static inline unsigned long long __float2ull_rz(float x) { return cut<unsigned long long>(x); }
static inline long long __double2ll_rz(double x) { return cut<long long>(x); }
static inline int __double2int_rz(double x) { return cut<int>(x); }
static inline unsigned __double2uint_rz(double x) { return cut<unsigned>(x); }
static inline unsigned long long __double2ull_rz(double x) { return cut<unsigned long long>(x); }
static inline float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
static inline long long __double_as_longlong(double d) { long long i; memcpy(&i, &d, 8); return i; }
static inline float rsqrt(float x) { return float(1 / sqrt(double(x))); }
static inline double __longlong_as_double(long long i) { double d; memcpy(&d, &i, 8); return d; }
static inline int __popcll(unsigned long long i) { return __builtin_popcountll(i); }
static inline int __clzll(long long i) { return __builtin_clzll(i); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float max_nan(float a, float b) { return a != a ? a : b != b ? b : a > b || (a == b && !std::signbit(a)) ? a : b; }
static inline float min_nan(float a, float b) { return a != a ? a : b != b ? b : a < b || (a == b && std::signbit(a)) ? a : b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float hardware_inverse(float x) {  // off by a unit in the last place, to either side; exact of powers of two
    const float q = 1 / x;
    unsigned i;
    memcpy(&i, &q, 4);
    if (!(fabsf(q) >= 1e-37f) || q - q != 0 || !(i & 0x7fffff)) return q;
    i += i & 4 ? 1 : -1;
    float off;
    return memcpy(&off, &i, 4), off;
}
#define __builtin_assume(known)
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float max_plain(float a, float b) { return fmaxf(a, b); }
static inline float min_plain(float a, float b) { return fminf(a, b); }
static inline unsigned short half_of(float x) { _Float16 h = x; unsigned short bits; memcpy(&bits, &h, 2); return bits; }
static inline float of_half(unsigned short bits) { _Float16 h; memcpy(&h, &bits, 2); return h; }
static inline unsigned short brain_of(float x) {
    const unsigned u = __float_as_uint(x);
    return x != x ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

struct bf16;
struct f16;
static inline float wide_of(const bf16*, unsigned short bits) { return __uint_as_float(unsigned(bits) << 16); }
static inline float wide_of(const f16*, unsigned short bits) { return of_half(bits); }
static inline unsigned short narrow_of(const bf16*, float x) { return brain_of(x); }
static inline unsigned short narrow_of(const f16*, float x) { return half_of(x); }
template <typename T> static unsigned max_pair(const T* p, unsigned a, unsigned b) {
    const auto greater = [&](unsigned short x, unsigned short y) { return unsigned(narrow_of(p, max_nan(wide_of(p, x), wide_of(p, y)))); };
    return greater(a & 0xffff, b & 0xffff) | greater(a >> 16, b >> 16) << 16;
}

static void (*body)(void*);
static void* body_data;
static inline void enter() {
    while (true) {  // a block's thread, then the next block's
        body(body_data);
        fibers[threadIdx.x].done = true;
        moved = true;
        pause();
    }
}
static inline void resume(Fiber& f) {
    if (_setjmp(scheduler)) return;
    if (f.started) _longjmp(f.place, 1);
    ucontext_t context;
    if (!f.stack) f.stack = (char*)malloc(1 << 18);
    f.started = true;
    getcontext(&context);
    context.uc_stack.ss_sp = f.stack, context.uc_stack.ss_size = 1 << 18, context.uc_link = nullptr;
    makecontext(&context, enter, 0);
    setcontext(&context);
}
// Whether every block ran to its end.
static inline bool launched(unsigned grid, unsigned threads) {
    blockDim.x = threads, gridDim.x = grid;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++) {
        block = Barrier(), tickets_given = 0;
        for (unsigned t = 0; t < threads; t++) {
            Fiber& f = fibers[t];
            if (!f.done) f.started = false;  // it waits for ever, of a launch before this one
            warps[t / 32] = Barrier(), f.done = false, f.group = 0, f.copied = 0;
        }
        const unsigned warps = (threads + 31) / 32;
        for (bool left = true, any = true; left; ) {
            if (!any) return false;
            left = any = false;
            for (unsigned k = 0; k < warps; k++) {
                const unsigned w = blockIdx.x % 2 ? warps - 1 - k : k;  // every other block from its last warp on
                do {
                    moved = false;
                    for (unsigned t = 32 * w; t < 32 * w + 32 && t < threads; t++) {
                        if (fibers[t].done) continue;
                        left = true, threadIdx.x = t;
                        resume(fibers[t]);
                    }
                    any |= moved;
                } while (moved);
            }
        }
    }
    return true;
}
template <typename... A, size_t... I> static bool run(void (*kernel)(A...), unsigned grid, unsigned threads, void** values, std::index_sequence<I...>) {
    auto call = [&] { kernel(*static_cast<A*>(values[I])...); };
    body = [](void* c) { (*static_cast<decltype(call)*>(c))(); };
    body_data = &call;
    return launched(grid, threads);
}
template <typename... A> static bool run(void (*kernel)(A...), unsigned grid, unsigned threads, void** values) {
    return run(kernel, grid, threads, values, std::index_sequence_for<A...>());
}
"""

#: Instructions, and what stands for them.
ASM = (
    (r'asm volatile\("cp\.async\.cg\.shared\.global \[%0\], \[%1\], 16;" :: "r"\((.*?)\),\s*"l"\((.*?)\) : "memory"\);', r"copy_later(\1, \2);"),
    (r'asm volatile\("cp\.async\.ca\.shared\.global \[%0\], \[%1\], %2;" :: "r"\((.*?)\),\s*"l"\((.*?)\), "n"\((BYTES|sizeof\(T\))\) : "memory"\);',
     r"copy_later(\1, \2, \3);"),
    (r'asm volatile\("cp\.async\.ca\.shared\.global \[%0\], \[%1\], %2, %3;"\s*:: "r"\((.*?)\), "l"\((.*?)\), "n"\(BYTES\), "r"\((.*?)\) : "memory"\);',
     r"copy_later(\1, \2, \3);"),
    (r'asm volatile\("\{\\n"\s*"\.reg \.b64 first;(?:(?!asm).)*?cp\.async.*?:: "r"\((\w+)\), "l"\((\w+)\) : "memory"\);', r"copy_later(\1, \2);"),
    (r'asm volatile\("\{\\n"\s*"\.reg \.b64 first;(?:(?!asm).)*?st\.global.*?:: "l"\((\w+)\),.*?: "memory"\);', r"memcpy(\1, values.at, 16);"),
    (r'asm volatile\("mbarrier\.init\..*?"r"\((barrier\(.*?\))\) : "memory"\);', r"opened(\1);"),
    (r'asm volatile\("fence\.mbarrier_init.*?;" ::: "memory"\);', ""),
    (r'asm volatile\("barrier\.cluster\.(?:arrive|wait)\..*?;" ::: "memory"\);', "__syncthreads();"),
    (r'asm volatile\("mbarrier\.arrive\.expect_tx.*?"r"\(here\), "r"\((.*?)\) : "memory"\);', r"announce(here, \1);"),
    (r'asm\("mapa\.shared::cluster\.u32 %0, %1, %2;" : "=r"\((\w+)\) : "r"\((\w+)\), "r"\(t\)\);', r"\1 = \2;"),
    (r'asm volatile\("st\.async[^"]*v2\.b32[^"]*"\s*:: "r"\(there\), "r"\((.*?)\), "r"\((.*?)\), "r"\(its_barrier\) : "memory"\);',
     r"post(there, \1, its_barrier), post(there + 4, \2, its_barrier);"),
    (r'asm volatile\("st\.async[^"]*bytes\.b32[^"]*"\s*:: "r"\(there\), "r"\((.*?)\), "r"\(its_barrier\) : "memory"\);', r"post(there, \1, its_barrier);"),
    (r'asm volatile\("\{\\n"\s*"\.reg \.pred done.*?:: "r"\((\w+)\), "r"\((.*?)\) : "memory"\);', r"collect(\1, \2);"),
    (r'asm volatile\("ld\.shared\.(?:v[24]\.)?u32 .*?"r"\(at\) : "memory"\);', "memcpy(&words, shared_at(at), sizeof(V));"),
    (r'asm volatile\("st\.v4\.u32 .*?"r"\(values\.at\[3\]\) : "memory"\);', "memcpy(p, values.at, 16);"),
    (r'asm volatile\("cp\.async\.commit_group;" ::: "memory"\);', "commit_copies();"),
    (r'asm volatile\("cp\.async\.wait_group %0;" :: "n"\((.*?)\) : "memory"\);', r"copy_now(\1);"),
    (r'asm volatile\("cp\.async\.wait_all;" ::: "memory"\);', "copy_now();"),
    (r'asm volatile\("griddepcontrol\.wait;" ::: "memory"\);', "waits++;"),
    (r'asm\("mov\.u32 %0, %%nctaid\.z;" : "=r"\(again\)\);', "again = 1;"),
    (r'asm volatile\("prmt\.b32 %0, %0, 0, %1;" : "\+r"\(word\) : "r"\(walk\.again\)\);', "word = walk.again == 0x3210 ? word : 0;"),
    (r'asm\("(max|min)\.NaN\.f32 %0, %0, %1;" : "\+f"\(a\) : "f"\(b\)\);', r"a = \1_nan(a, b);"),
    (r'asm\("max\.NaN\.(?:bf|f)16x2 %0, %0, %1;" : "\+r"\(a\) : "r"\(b\)\);', "a = max_pair(p, a, b);"),
    (r'asm\("(max|min)\.f32 %0, %0, %1;" : "\+f"\(a\) : "f"\(b\)\);', r"a = \1_plain(a, b);"),
    (r'asm\("ex2\.approx\.ftz\.f32 %0, %0;" : "\+f"\(x\)\);', "x = x < -126 ? 0 : exp2f(x);"),
    (r'asm\("ex2\.approx\.f32 %0, %1;" : "=f"\(e\) : "f"\(u\)\);', "e = exp2f(u);"),
    (r'asm\("rcp\.approx\.ftz\.f32 %0, %0;" : "\+f"\(x\)\);', "x = hardware_inverse(x);"),
    (r'asm\("cvt\.rn\.f16\.f32 %0, %1;" : "=h"\(bits\) : "f"\(x\)\);', "bits = half_of(x);"),
    (r'asm\("cvt\.rn\.f16\.f64 %0, %1;" : "=h"\(bits\) : "d"\(x\)\);', "_Float16 h = x; memcpy(&bits, &h, 2);"),
    (r'asm\("cvt\.f32\.f16 %0, %1;" : "=f"\(x\) : "h"\(bits\)\);', "x = of_half(bits);"),
    (r'asm\("cvt\.rn\.bf16\.f32 %0, %1;" : "=h"\(bits\) : "f"\(x\)\);', "bits = brain_of(x);"),
    (r'asm\("cvt\.rn\.bf16x2\.f32 %0, %1, %2;" : "=r"\(two\) : "f"\(x\), "f"\(0\.0f\)\);', "two = unsigned(brain_of(x)) << 16;"),
    (r'asm\("sqrt\.approx\.f32 %0, %0;" : "\+f"\(x\)\);', "x = sqrtf(x);"),
    (r'asm\("lg2\.approx\.f32 %0, %0;" : "\+f"\(x\)\);', "x = log2f(x);"),
    (r'asm\("" : "\+l"\(p\)\);\s*__builtin_assume\(__isGlobal\(p\)\);', ""),
    (r'asm\("lg2\.approx\.ftz\.f32 %0, %0;" : "\+f"\(x\)\);', "x = log2f(fabsf(x) < 0x1p-126f ? 0 : x);"),
    (r'asm\("tanh\.approx\.f32 %0, %0;" : "\+f"\(x\)\);', "x = tanhf(x);"),
    (r'asm\("mul\.wide\.u32 %0, %1, %2;" : "=l"\(product\) : "r"\(a\), "r"\(b\)\);', "product = u64(a) * b;"),
    (r"#if __CUDA_ARCH__ >= 890", "#if 0  // conversions of floats of 8 bits, which are not here"),
    (r"extern __shared__ __align__\(128\) unsigned char row_memory\[\];", ""),
)  # fmt: skip
#: The last: g++ looks for what it needs no more when its memory has become four times as much, not a third more.
FLAGS = ("-O0", "-std=c++17", "-ffp-contract=off", "-w", "-fwrapv", "-fPIC", "--param", "ggc-min-expand=300")


@cache
def _command() -> tuple[str, ...]:
    """g++, which, from 12 on, fills variables that nobody has set: registers of a GPU hold something else, where g++ -O0 mostly has zeros."""
    spoilt = "-ftrivial-auto-var-init=pattern"
    known = subprocess.run(["g++", spoilt, "-E", "-x", "c++", "/dev/null"], capture_output=True).returncode == 0
    return ("g++", *FLAGS, *[spoilt] * known)


@cache
def _read(head: str) -> tempfile.TemporaryDirectory:
    """A folder with `head.h`, and what g++ made of it: half of a small kernel's build, done once in a process."""
    folder = tempfile.TemporaryDirectory(prefix="emulated-")
    header = Path(folder.name) / "head.h"
    header.write_text(head)
    subprocess.run([*_command(), "-x", "c++-header", str(header), "-o", f"{header}.gch"], check=True)
    return folder


def built(path: Path, text: str, head: str | None = None) -> ctypes.CDLL:
    """The library of a C++ text that stands behind `head` (None: SHIM); the text is written to `path`."""
    path.write_text(f'#include "head.h"\n{text}')
    subprocess.run([*_command(), *LINKER, "-shared", f"-I{_read(head or SHIM).name}", "-o", str(path.with_suffix(".so")), str(path)], check=True)
    return ctypes.CDLL(str(path.with_suffix(".so")))


def kernels(path: Path, source: str, expressions: list[str]) -> ctypes.CDLL:
    """The library of a CUDA source, with an entry `launch_<k>` for each of its kernels that expressions name."""
    for pattern, made in ASM:
        source = re.sub(pattern, made, source, flags=re.S)
    entries = [
        f'extern "C" bool launch_{k}(unsigned grid, unsigned threads, void** values) {{ return run(&{e}, grid, threads, values); }}'
        for k, e in enumerate(expressions)
    ]
    return built(path, "\n".join([source, *entries]))


#: Bytes of an emulated block's dynamic shared memory: no more than a launch asks for may be written.
SHARED = 1 << 18


def started(library: ctypes.CDLL, name: str) -> Any:
    """An entry of `kernels`, called as `nvrtc` calls a loaded function."""
    entry = getattr(library, name)
    entry.restype, library.rows_memory.restype = ctypes.c_bool, ctypes.c_void_p
    memory = library.rows_memory()

    def start(
        grid: int, device: int, stream: int, values: list[Any], threads: int = nvrtc.THREADS, shared: int = 0, cluster: int = 1,
        follows: bool = False,
    ) -> None:  # fmt: skip
        places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        beyond = SHARED - shared
        ctypes.memset(memory + shared, 0x5A, beyond)
        waits = ctypes.c_uint.in_dll(library, "waits")
        waits.value = 0
        assert entry(grid, threads, places), "threads wait for one another for ever"
        assert not follows or waits.value >= grid * threads, "a launch that may begin before the one before has ended does not wait for it"
        assert ctypes.string_at(memory + shared, beyond) == b"\x5a" * beyond, f"a block has {shared} bytes of shared memory and writes beyond"

    return start


class EmulatedLists:
    """The CUDA launcher of a map for tensors on the CPU, by themselves and in lists; kernels are built when they are first needed.
    `launched` has what was launched: a name, and the blocks."""

    def __init__(self, kernel: Any, folder: Path):
        self.launcher = nvrtc.Launcher(kernel)
        self.lists = ListLauncher(kernel, self.launcher)
        self.launched: list[tuple[str, int]] = []
        self.folder, self.functions = folder, dict[str, Any]()
        for run in (self.launcher.run, self.lists.run):
            run.arch = "sm_80"
            run.function = partial(self.function, run.source)  # type: ignore[method-assign]

    def function(self, source: str, expression: str, arch: str) -> Any:
        if expression not in self.functions:
            path = self.folder / f"emulated_{len(self.functions)}.cpp"
            self.functions[expression] = started(kernels(path, source, [expression]), "launch_0")

        def start(grid: int, *rest: Any) -> None:
            self.launched.append((expression, grid))
            self.functions[expression](grid, *rest)

        return start

    def __call__(self, call: Any) -> None:
        self.launcher.launch(call, 0, 0)


class EmulatedOrders:
    """Stands for the launcher of the kernels that sort: each is built when it is first needed, once in a process."""

    arch = "sm_80"
    libraries: dict[str, tempfile.TemporaryDirectory] = {}
    functions: dict[str, Any] = {}

    def function(self, expression: str, arch: str) -> Any:
        if expression not in self.functions:
            folder = self.libraries[expression] = tempfile.TemporaryDirectory(prefix="emulated-")
            library = kernels(Path(folder.name) / "keys.cpp", keys.source(), [expression])
            self.functions[expression] = started(library, "launch_0")
        return self.functions[expression]


def following(rows: Callable[..., nvrtc.Launch | None]) -> Callable[..., nvrtc.Launch | None]:
    """A launcher's `rows`, of which each launch but the first may begin early, as on devices that can do so."""

    def made(*given: Any, **more: Any) -> nvrtc.Launch | None:
        found = rows(*given, **more)
        return found and found._replace(steps=tuple(step._replace(follows=k > 0) for k, step in enumerate(found.steps)))

    return made


class Emulated(nvrtc.Launcher):
    """A kernel's launcher for tensors on the CPU; `calls` are those that it is built for, and `later`, whose rules may change from one to
    the next.  `launched` has the names of what was launched."""

    def __init__(self, text: str, folder: Path, *calls: tuple[Any, ...], later: Iterable[tuple[Any, ...]] = ()):
        super().__init__(check.check(syntax.parse(text, "emulated.k")))
        self.run.arch = "sm_80"
        self.run.rows = following(self.run.rows)  # type: ignore[method-assign]
        self.orders = EmulatedOrders()  # type: ignore[assignment]
        found: dict[str, None] = {}
        self.run.function = lambda expression, _: found.setdefault(expression) or (lambda *launched: None)  # type: ignore[method-assign]
        for args in chain(calls, later):
            self.launch(arguments.bind(self.kernel, args, {}, None), 0, 0)
        self.launched: list[str] = []
        self.run.function = self.function  # type: ignore[method-assign]
        self.expressions = list(found)
        self.library = kernels(folder / f"{self.kernel.name}.cpp", self.run.source, self.expressions)

    def function(self, expression: str, arch: str) -> Any:
        self.launched.append(expression)
        return started(self.library, f"launch_{self.expressions.index(expression)}")

    def __call__(self, *args: Any, out: Any = None) -> Any:  # type: ignore[override]
        """The results of a call, by name."""
        call = arguments.bind(self.kernel, args, {}, out)
        self.launch(call, 0, 0)
        return call.results


def for_any_rows(monkeypatch: pytest.MonkeyPatch, planner: ModuleType) -> list[rows.Walk]:
    """Have `planner` (`rows` or `rounds`) plan as a written file launches rows that its kernels for rows without gaps do not take: by a
    kernel for 8 dims of rows and of a row, which finds in its layout what moves in vectors.  The walks that it planned go into the list."""
    planned, laid, walks = planner.plan, rows.layout, list[rows.Walk]()
    given: dict[rows.RowPlan, rows.Walk] = {}

    def padded(values: tuple[int, ...], by: int) -> tuple[int, ...]:
        return (by,) * (8 - len(values)) + values

    def walk(w: rows.Walk) -> rows.Walk:
        rounds = w.stages is not None
        made = w._replace(row_rank=8, rank=8, wide=2**64 - 1, index64=True, edges=w.edges if rounds else w.vec > 1 and w.team not in (1, 2))
        return made._replace(threads=1024, blocks=1) if w.stages and w.stages > 0 and w.team == 0 else made

    def plan(*asked: Any) -> Any:
        found = planned(*asked)
        under = found if isinstance(found, rows.RowPlan) else found.under
        walks.append(under.steps[0][0])
        strides, row_strides = (tuple(padded(own, 0) for own in each) for each in (under.strides, under.row_strides))
        made = replace(
            under, steps=tuple((walk(w), grid) for w, grid in under.steps), sizes=padded(under.sizes, 1),
            row_sizes=padded(under.row_sizes, 1), strides=strides, row_strides=row_strides,
        )  # fmt: skip
        given[made] = walks[-1]
        return made if found is under else replace(found, under=made, launches=tuple((walk(w), *rest) for w, *rest in found.launches))

    def layout(plan: rows.RowPlan, gathers: Any, work: int) -> ctypes.Structure:
        made = laid(plan, gathers, work)
        if plan in given:
            made.wide, made.main = given[plan].wide, given[plan].main
        return made

    monkeypatch.setattr(planner, "cached", plan)
    monkeypatch.setattr(rows, "layout", layout)
    return walks
