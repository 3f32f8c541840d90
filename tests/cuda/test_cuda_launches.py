"""What a call launches: kgen's runtime and the host part of a written file plan alike.  g++ builds the host part as it is written, with
kernels that note how they are launched.  No GPU is needed."""

from __future__ import annotations

import ctypes
import itertools
import random
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kgen import check, syntax
from kgen.backends import backend
from kgen.backends.cuda import Layout, RowLayout
from kgen.backends.cuda_layouts import FLAT, TOLD
from kgen.backends.launches import STORING
from kgen.grad import backward
from kgen.parts import over_parts
from kgen.resources import resource
from kgen.runtime import maps, nvrtc, persistent, rounds, rows, strided, tiles, tuned
from kgen.runtime.arguments import index_strides
from kgen.runtime.limits import limits
from kgen.show import show
from kgen.types import DTYPES, ELLIPSIS
from tests.cuda.host import HOST_TYPES
from tests.runtime.plans import size as drawn_size

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
ARCHES = ("sm_80", "sm_90", "sm_100")

#: The device that is there, and what is noted.
HEAD = r"""
#define __CUDA_ARCH_LIST__ 800, 900, 1000
#define __device__
#define __global__
#define __shared__
#define __align__(n)
#define __launch_bounds__(...)
#define __noinline__
#define __grid_constant__
#include <string>
extern dim3 blockIdx, threadIdx, blockDim, gridDim;
static int arch, built;  // that a device has, and for which a file is built
static int allowed_shared, allowed_cluster;
static std::string noted;
static cudaError_t cudaGetDevice(int* d) { return *d = 0, cudaSuccess; }
static cudaError_t cudaDeviceGetAttribute(int* v, int which, int) {
    return *v = which == cudaDevAttrComputeCapabilityMajor ? arch / 10 : arch % 10, cudaSuccess;
}
static cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t) {
    return *p = (void*)16, noted += "work=" + std::to_string(bytes) + "\n", cudaSuccess;
}
static cudaError_t cudaFreeAsync(void*, cudaStream_t) { return cudaSuccess; }
template <typename F> cudaError_t cudaFuncSetAttribute(F*, int which, int value) {
    return (which == cudaFuncAttributeMaxDynamicSharedMemorySize ? allowed_shared : allowed_cluster) = value, cudaSuccess;
}
template <typename F> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, F*) { return a->ptxVersion = built, cudaSuccess; }
template <typename F> cudaError_t cudaOccupancyMaxActiveClusters(int* found, F, const cudaLaunchConfig_t* c) {
    const int cluster = int(c->attrs->val.clusterDim.x), shared = int(c->dynamicSmemBytes);
    if (shared > allowed_shared || cluster > (allowed_cluster ? 16 : 8)) return cudaErrorInvalidValue;
    return *found = 100 / cluster, cudaSuccess;
}
float __double2float_rz(double);
float __ll2float_rz(long long);
float __ull2float_rz(unsigned long long);
long long __float2ll_rz(float);
unsigned long long __float2ull_rz(float);
float __fmaf_rn(float, float, float);
double __fma_rn(double, double, double);
unsigned __float_as_uint(float);
float __uint_as_float(unsigned);
unsigned __shfl_xor_sync(unsigned, unsigned, int);
unsigned __cvta_generic_to_shared(const void*);
void __syncthreads();
void __threadfence();
unsigned atomicAdd(unsigned*, unsigned);
void __syncwarp();
"""
RECORD = r"""
template <int K> static void note(const char* name, const i64 (&all)[K]) {
    noted += std::string(name) + "=";
    for (i64 x : all) noted += std::to_string(x) + ",";
    noted += ";";
}
template <int RR, int RI, int K, int G, typename Index> static void note_layout(const Rows<RR, RI, K, G, Index>& r) {
    note("rows", {i64(r.rows), i64(r.n), i64(r.segments), i64(r.span), i64(r.misaligned), i64(r.slot)});
    note("wide", {i64(r.wide), i64(r.main)});
    for (int d = 0; d < RR; d++) note("row_size", {i64(r.row_size[d])});
    for (int d = 0; d < RI; d++) note("size", {i64(r.size[d])});
    for (int k = 0; k < K; k++) {
        for (int d = 0; d < RR; d++) note("row_stride", {i64(r.row_stride[k][d])});
        for (int d = 0; d < RI; d++) note("stride", {i64(r.stride[k][d])});
    }
}
template <typename L> static auto note_layout(const L& l) -> decltype(l.every, void()) {
    note_layout(l.rows);
    note("rounds", {i64(l.columns), i64(l.every), i64(l.groups), i64(l.few), i64(l.room)});
}
template <int RANK, int K, typename Index> static void note_layout(const Layout<RANK, K, Index>& l) {
    note("n", {i64(l.n)});
    for (int d = 0; d < RANK; d++) note("size", {i64(l.size[d])});
    for (int k = 0; k < K; k++) {
        for (int d = 0; d < RANK; d++) note("stride", {i64(l.stride[k][d])});
    }
}
template <int RANK, int K, typename Index> static void note_layout(const Tiles<RANK, K, Index>& t) {
    note_layout<RANK, K>(reinterpret_cast<const Layout<RANK, K, Index>&>(t));
    note("tiles", {t.many[0], t.many[1], t.many[2], t.extent[0], t.extent[1], t.extent[2], t.inverse[0], t.inverse[1], t.each, t.shift, t.mask});
}
template <typename L, typename... P, typename... A>
static cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c, void (*kernel)(L, P...), const L& layout, A... arguments) {
    int cluster = 1, follows = 0;
    for (unsigned k = 0; k < c->numAttrs; k++) {
        if (c->attrs[k].id == cudaLaunchAttributeClusterDimension) cluster = int(c->attrs[k].val.clusterDim.x);
        else follows = c->attrs[k].val.programmaticStreamSerializationAllowed;
    }
    const int shared = int(c->dynamicSmemBytes);
    if (shared > allowed_shared || cluster > (allowed_cluster ? 16 : 8)) return cudaErrorInvalidValue;
    note("launch", {i64(c->gridDim.x), i64(c->blockDim.x), i64(cluster), i64(shared), i64(follows)});
    note_layout(layout);
    kernel(layout, arguments...);
    noted += "\n";
    return cudaSuccess;
}
extern "C" const char* found() { return noted.c_str(); }
extern "C" void begin(int device, int of) { arch = device, built = of, noted.clear(), allowed_shared = allowed_cluster = 0; }
"""

SPECS = {
    "softmax": "softmax(x: T[..., N]) -> y: T[..., N]\ne = exp(x - max[N](x))\ny = e / sum[N](e)",
    "again": "again(x: T[..., N], w: T[N], b: T[N]) -> y: T[..., N]\nc = x - mean[N](x)\ny = c * rsqrt(mean[N](c^2) + 1e-5) * w + b",
    "scaled": "scaled(x: T[..., N], w: T[N]) -> y: T[..., N]\ny = x * rsqrt(mean[N](x^2) + 1e-5) * w",
    "total": "total(x: T[..., N]) -> (s: T32[...], m: T[...])\ns = sum[N](x)\nm = max[N](x)",
    "whole": "whole(x: T[...]) -> s: T[]\ns = sum[...](x * x)",
    "groups": "groups(x: T[B, C, S], w: T[C]) -> y: T[B, C, S]\nm = mean[C, S](x)\ny = (x - m) * w * rsqrt(mean[C, S]((x - m)^2))",
    "wide": "wide(x: T[..., N], h: f32[..., N], k: i8[N]) -> (y: f32[..., N], q: i64[...])\ny = x * h - sum[N](x * k)\nq = argmax[N](h + x)",
    "places": "places(x: f32[..., N], s: f32[...]) -> (y: f32[..., N], s': f32[...])\ny = x * s * index[N] - max[N](x) - min[N](x)\ns' = s + sum[N](x)",
    "slope": "slope(dy: T[..., N], x: T[..., N], s: f32[...]) -> dx: T[..., N]\ne = exp(x) / s\ndx = e * (dy - sum[N](dy * e))",
    "columns": "columns(x: T[M, N], y: T[M, N]) -> (a: T32[N], b: T32[N])\na = sum[M](x * y)\nb = sum[M](y)",
    "many": "many(x: T[R, N]) -> y: T[R, N]\ny = " + " + ".join(f"x * sum[N](x^{k} - max[N](x * {k}))" for k in range(2, 6)),
    "norm": "norm(x: T[..., N], dy: T[..., N], w: T[N], r: f32[...]) -> (dx: T[..., N], dw: T[N], db: f32[N])\n"
    "t = dy * w\ndx = t * r - x * r^3 * mean[N](t * x)\ndw = sum[...](dy * x * r)\ndb = sum[...](dy)",
    "blocks": "blocks(x: T[..., G, 64], w: T[64]) -> (y: T[..., G, 64], s: f32[..., G])\nt = x * rsqrt(mean[G, 64](x^2)) * w\n"
    "s = max[64](abs(t))\ny = t / s",
    "capped": "capped(x: T[..., N], c: float) -> y: T[..., N]\ny = softmax[N](c * tanh(x / c))",
    "twice": "twice(x: T[..., N], z: f32[..., N], w: T[N]) -> y: T[..., N]\nh = x * silu(z)\ny = h * rsqrt(mean[N](h^2)) * w + x",
    "magnitude": "magnitude(dy: T[..., N], x: T[..., N], z: T[..., N], w: T[N], m: f32[...]) -> (dx: T[..., N], dw: T[N])\n"
    "t = dy / m\ndx = t * w * silu(z) - sign(x) * mean[N](dy * (w * x / m) / m)\ndw = sum[...](t * x)",
    "upright": "upright(x: T[..., M, N], w: T[N], g: T32[M]) -> (y: T[..., M, N], m: T32[..., N])\nc = x - mean[M](x)\n"
    "y = c * rsqrt(mean[M](c^2) + 1e-5) * w + g\nm = T32(mean[M](x))",
    "downright": "downright(y: T[M, N], dy: T[M, N]) -> dx: T[M, N]\ndx = y * (dy - sum[M](y * dy))",
    "gelu_like": "gelu_like(x: T[...], y: T[...]) -> z: T[...]\nz = x * tanh(y)",
    "scale": "scale(x: T[..., N], w: f32[N], a: f32[...]) -> (y: T[..., N], p: f32[..., N])\ny = x * w + a\np = x - a",
    "under": "under(x: T[..., H, W]) -> y: T[..., P, Q] where P = H // 2, Q = W - 1, I = 3\n"
    "y = sum[I](x[H = 2 * index[P] + index[I] - 1, W = index[Q] else 0])",
    "lower": "lower(x: T[..., H, W]) -> y: T[..., P, Q] where P = H // 2, Q = W - 1, I = 3\n"
    "y = sum[I](x[H = 2 * index[P] + index[I] - 1, W = index[Q] else 0]) + index[Q]",
    "beside": "beside(x: T[..., W]) -> y: T[..., P] where P = W + 1, I = 3\ny = sum[I](x[W = index[P] + index[I] - 1 else 0])",
    "behind": "behind(x: T[..., W]) -> y: T[..., P] where P = W + 1, I = 3\ny = sum[I](x[W = index[P] + index[I] - 1 else 0]) + index[P]",
    "nears": "nears(x: T[B, C, N], g: T[B, C, N]) -> (d: T[B, C, N], u: T32[C])\nt = x * x[N = index[N] - 3 else 0]\nh = g * sigmoid(t) * tanh(t)\n"
    "d = h + h[N = index[N] + 1 else 0] + h[N = index[N] + 2 else 0]\nu = sum[B, N](h)",
    "channels": "channels(x: T[B, C, S]) -> (m: T32[C], v: T32[C])\nm = mean[B, S](x)\nv = mean[B, S]((x - m)^2)",
    "slopes": "slopes(g: T[B, C, S], x: T[B, C, S], m: f32[B, C]) -> (u: T32[C], v: T32[C])\nu = sum[B, S](g * (x - m))\nv = sum[B, S](g)",
    "turned": "turned(x: T[..., N, M], s: T[M], z: f32[..., M, N]) -> y: T[..., M, N]\ny = x * s + z",
    "squares": "squares(x: T[B, C, P, Q, H, W]) -> y: T[B, C, H, P, W, Q]\ny = x",
    "grid": "grid(x: i8[H, W]) -> y: f64[H, W]\ny = f64(x * index[W] + index[H])",
}  # fmt: skip

MAPS = ["gelu_like", "scale", "grid", "turned", "squares", "under", "lower", "beside", "behind"]


def kernels() -> dict[str, check.Kernel]:
    made = {name: over_parts(check.check(syntax.parse(text, f"{name}.k"))) for name, text in SPECS.items()}
    norm = (resource("specs") / "layernorm.k").read_text()
    back = backward(check.check(syntax.parse(norm, "layernorm.k"))).kernel
    return {**made, back.name: back}


class File:
    """Written files in one library, their launches noted."""

    def __init__(self, folder: Path):
        self.kernels, self.heads = kernels(), dict[str, list[str]]()
        target, bodies = backend("cuda"), []
        for name, kernel in self.kernels.items():
            for file, text in target.written(kernel).items():
                if file.endswith(".cuh"):
                    (folder / file).write_text(text)
                    continue
                for entry, given in re.findall(r'^extern "C" cudaError_t (\w+)\((.*?)\) \{$', text, re.M | re.S):
                    if not re.search(self.left_out(name), f"{entry}("):
                        self.heads[entry] = [p.strip() for p in given.split(",")]
                text = re.sub(r"^#include .*$", "", text, flags=re.M)
                text = re.sub(r"^(__global__ .*?\{)\n.*?\n\}$", r"\1 noted += __PRETTY_FUNCTION__; }", text, flags=re.M | re.S)
                text = re.sub(rf'^extern "C" cudaError_t \w+{self.left_out(name)}.*?\n\}}$', "", text, flags=re.M | re.S)
                bodies.append(re.sub(r"^(__device__ [^;]*?\{)\n.*?\n\}$", r"\1 }", text, flags=re.M | re.S))
                assert name in text
        path = folder / "all.cpp"
        path.write_text("\n".join([HOST_TYPES, HEAD, '#include "kgen_tiles.cuh"', '#include "kgen_walk.cuh"', '#include "kgen_rounds.cuh"', RECORD, '#include "kgen_rounds_plan.cuh"', '#include "kgen_persistent_plan.cuh"', '#include "kgen_near.cuh"', *bodies]))
        flags = ["-O0", "-std=c++17", "-w", "-shared", "-fPIC", "-fwrapv", "--param", "ggc-min-expand=300"]
        subprocess.run(["g++", *flags, "-o", str(folder / "all.so"), str(path)], check=True)
        self.library = ctypes.CDLL(str(folder / "all.so"))
        self.library.found.restype = ctypes.c_char_p

    @staticmethod
    def left_out(name: str) -> str:
        """The end of entries that are not built: f16 is as bf16, and g++ takes a while."""
        if name in ("whole", "groups", "nears", "wide", "many", "blocks", "upright", "downright", "layernorm_backward", "channels", "slopes"):  # of many passes, or of several dims
            return r"_(f16|f32|f64)\w*\("
        return r"_f16\w*\(" if name in ("softmax", "scale") else r"_(f16|f64)\w*\("

    def call(
        self, entry: str, arch: str, outer: int | None, sizes: list[int], operands: dict[str, tuple[int, list[int]]], built: str = ""
    ) -> str:
        """What a call notes: `operands` have addresses and strides by the names of pointers; the file is `built` for another architecture."""
        array = ctypes.c_longlong * len(sizes)
        values: list[Any] = []
        kept = []
        for p in self.heads[entry]:
            kind, name = p.rsplit(" ", 1)
            if name in ("rank", "outer"):
                values.append(ctypes.c_int(len(sizes) if name == "rank" else outer or 0))
            elif kind.endswith("i64*") and (name == "size" or name.endswith("_stride")):
                kept.append(array(*(sizes if name == "size" else operands[name.removesuffix("_stride")][1])))
                values.append(kept[-1])
            elif kind.endswith("*"):
                values.append(ctypes.c_void_p(operands[name][0]))
            elif kind == "double":
                values.append(ctypes.c_double(1))
            else:
                values.append(ctypes.c_void_p(0) if kind == "cudaStream_t" else ctypes.c_longlong(1))
        self.library.begin(*(int(of.removeprefix("sm_")) for of in (arch, built or arch)))
        assert getattr(self.library, entry)(*values) == 0, (entry, arch, sizes, operands)
        return self.library.found().decode()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> File:
    return File(tmp_path_factory.mktemp("launches"))


def layout(rng: random.Random, sizes: list[int], has: list[bool], itemsize: int, order: list[int], expands: float) -> tuple[int, list[int]]:
    """An address and strides: dense, padded, beginning anywhere, or in so many cases expanded along a dim."""
    strides, step = [0] * len(sizes), rng.choice((1,) * 14 + (2, 64))
    for d in order:
        if has[d]:
            strides[d] = step if rng.random() >= expands else 0
            step *= sizes[d] + rng.choice((0,) * 12 + (1, 8))
    return 4096 + (rng.randrange(0, 16, itemsize) if rng.random() < 0.2 else 0), strides


def drawn(rng: random.Random, unit: Layout | RowLayout) -> tuple[list[int], list[int]]:
    """Sizes of the rows' dims and of a row's (of a map: none)."""
    inner = unit.inner if isinstance(unit, RowLayout) else ()
    outer = unit.rows if isinstance(unit, RowLayout) else unit.dims
    n = drawn_size(rng, 2**20)

    def split(dims: tuple[str, ...], total: int) -> list[int]:
        count = sum(rng.choice((1, 1, 2)) if d == ELLIPSIS else 1 for d in dims)
        made = []
        for k in range(count):
            made.append(max(1, total if k == count - 1 else rng.choice((1, 2, 3, 4, 8, 16))))
            total //= made[-1]
        rng.shuffle(made)
        return made

    many = max(1, min(rng.choice((1, 3, 100, 600, 5000)), 2**31 // n))
    return split(outer, many if inner else n), split(inner, n)


def names(unit: Layout | RowLayout, dims: tuple[str, ...], count: int) -> list[str]:
    """The name of each dim of a part; the leading ones are "..."."""
    named = [d for d in dims if d != ELLIPSIS]
    return [ELLIPSIS] * (count - len(named)) + named


Planned = rows.RowPlan | rounds.RoundsPlan


def room(function: Any, device: int, threads: int, shared: int, cluster: int) -> int:
    """What the device says of its room for clusters."""
    return 100 // cluster


def fitted(planned: Planned, unit: RowLayout) -> Planned:
    """A plan on that device."""
    follows = isinstance(planned, rounds.RoundsPlan) and not unit.columns
    return persistent.fitted(planned, room(None, 0, *planned.launches[0][2:])) if follows else planned


def expected(step: tuple[rows.Walk, int, int, int, int], plan: rows.RowPlan, follows: bool) -> tuple:
    """A launch in the words of both."""
    walk, grid, threads, shared, cluster = step
    team = 0 if walk.stages is None and (walk.cluster and not walk.across or is_block(walk.team, threads)) else walk.team  # a cluster's blocks are teams
    way = team, walk.across, walk.vectors, walk.vec, walk.keep, walk.cluster, walk.step, walk.abreast
    first = plan.steps[0][0]
    wide = first.wide if first.abreast else walk.wide  # one layout for all launches
    return (
        grid, threads, cluster, shared, follows, walk.stages, () if walk.stages == -1 else way, wide, walk.main,
        plan.rows, plan.n, plan.segments, plan.span, plan.misaligned, plan.slot,
    )  # fmt: skip


def is_block(team: int, threads: int) -> bool:
    """Whether a team is a block of a known size: a written file may learn it at the launch instead."""
    return team == threads > 32


FIELD = re.compile(r"Walk = (?:Rounds<|Nearby<)?Walk<([^>]*)>(?:, ([-\d]+)>)?")


def noted_numbers(line: str) -> dict[str, list[int]]:
    values: dict[str, list[int]] = {}
    for name, found in re.findall(r"(\w+)=([-\d,]+);", line):
        values.setdefault(name, []).extend(int(x) for x in found.split(",") if x)
    return values


def launched(line: str) -> tuple[tuple, dict[str, list[int]]]:
    """A noted launch of a pass over rows, and its dims."""
    values = noted_numbers(line)
    found = FIELD.search(line)
    assert found, line
    walk = [x.strip() for x in found.group(1).split(",")]
    number = [int(x.removesuffix("ull").removesuffix("l").removesuffix("u")) if x.lstrip("-").rstrip("ul").isdigit() else x == "true" for x in walk[:-1]]
    _, _, team, across, vectors, vec, _, wide, main, _, keep, cluster, step = number[:13]
    assert values["launch"][1] <= number[0], line
    assert wide == 2**64 - 1 or wide & ~values["wide"][0] == 0 and (vec == 1 or wide >> main & 1), line  # what moves in vectors may
    stages = int(found[2]) if found[2] else None
    team = 0 if stages is None and is_block(team, values["launch"][1]) else team
    way = team, across, vectors, vec, keep, cluster, step, int(walk[20]) if len(walk) > 20 else 0
    return (*values["launch"], stages, () if stages == -1 else way, *values["wide"], *values["rows"]), values


def padded(inner: Any, rank: int, fill: int) -> list[int]:
    return [fill] * (rank - len(inner)) + list(inner)


def is_same(lines: list[str], plan: Planned, arch: str) -> None:
    """Hold what was noted to a plan, field by field; where devices can, each launch but the first may begin before the one before has ended."""
    notes = [line for line in lines if not line.startswith("work")]
    under = plan.under if isinstance(plan, rounds.RoundsPlan) else plan
    assert len(notes) == len(plan.launches)
    assert (f"work={plan.work}" in lines) == (plan.work > 0)
    for k, (line, step) in enumerate(zip(notes, plan.launches, strict=True)):
        got, values = launched(line)
        assert got == expected(step, under, k > 0 and limits(arch).cluster > 0)
        row_rank, rank = (len(values[k]) for k in ("row_size", "size"))
        assert values["row_size"] == padded(under.row_sizes, row_rank, 1) and values["size"] == padded(under.sizes, rank, 1)
        assert values["row_stride"] == [s for own in under.row_strides for s in padded(own, row_rank, 0)]
        assert values["stride"] == [s for own in under.strides for s in padded(own, rank, 0)]
        if isinstance(plan, rounds.RoundsPlan):
            assert values["rounds"] == [plan.columns, plan.every, plan.groups, plan.few, plan.room]


class Call:
    """A random call of one pass on an architecture; of a map alone, where operands are `expanded` more often."""

    def __init__(self, rng: random.Random, file: File, expanded: bool = False, of: tuple[str, ...] = ()):
        name = rng.choice(MAPS if expanded else of or list(file.kernels))
        self.kernel = file.kernels[name]
        units = backend("cuda").layout(self.kernel)
        self.number = rng.randrange(len(units))
        unit = self.unit = units[self.number]
        prefix = unit.kernel.removesuffix("_kernel")
        self.entry = rng.choice([e for e in file.heads if re.fullmatch(prefix + r"((_(f32|f16|bf16|f64))*)", e)])
        binding = dict(zip(self.kernel.variables, self.entry.removeprefix(prefix).split("_")[1:], strict=False))
        self.binding = tuple(binding[v] for v in unit.variables)
        self.outer, self.inner = drawn(rng, unit)
        if isinstance(unit, Layout) and (unit.held or unit.reaches) and rng.random() < 0.3:  # enough for several rows a thread
            self.outer = [rng.choice((3, 4, 64)), *(rng.choice((5, 8)) for _ in unit.dims[2:]), 2**18]
        turns = isinstance(unit, Layout) and bool(unit.turned) and rng.random() < 0.8  # its operands lie as declared
        if turns:
            self.outer = [rng.choice((1, 2, 2, 3, 4, 7, 16, 24, 56) if len(self.outer) > 4 else (2, 3, 64, 100, 136, 600)) for _ in self.outer]
        upright = isinstance(unit, RowLayout) and unit.abreast and len(unit.inner) == 1 and rng.random() < 0.8  # of which a thread may take several
        if upright:
            self.outer[-1], self.inner = rng.choice((8, 24, 64, 264, 4096, 20)), [rng.choice((20, 60, 130, 300, 700, 2000, 9000, 70_000))]
        sizes = self.outer + self.inner
        parts = (unit.rows, unit.inner) if isinstance(unit, RowLayout) else (unit.dims, ())
        each = [*names(unit, parts[0], len(self.outer)), *names(unit, parts[1], len(self.inner))]
        order = list(reversed(range(len(sizes))))
        if rng.random() < 0.25:
            rng.shuffle(order)
        self.sizes, self.pointers, self.given = sizes, dict[str, tuple[int, list[int]]](), []
        for o in unit.operands:
            if o.role == "index":
                strides = [s for part, own in zip(parts, (self.outer, self.inner), strict=True) for s in index_strides(part, own, o.name)]
                self.given.append((0, strides, 0))
                continue
            dtype = o.dtype if o.dtype in DTYPES else binding[o.dtype] if o.dtype in binding else "f64" if "f64" in binding.values() else "f32"
            expands = 0.0 if isinstance(unit, Layout) and o.role in ("result", "state") else 0.2 if expanded else 0.03
            own_order = sorted(order, key=lambda d: -o.dims.index(each[d]) if each[d] in o.dims else 0) if turns or upright else order
            address, strides = layout(rng, sizes, [d in o.dims for d in each], DTYPES[dtype].bytes, own_order, expands)
            own = [0 if d == getattr(o, "dim", "") else s for d, s in zip(each, strides, strict=True)]  # of pieces of a row, not of its elements
            self.given.append((address % 16, own, DTYPES[dtype].bytes))
            self.pointers[o.name] = address, strides
        self.arch = rng.choice(ARCHES)


#: Elements of a row below which a row may be too short for four of its vectors.
SHORT = 64


def in_lines(call: Call, plan: Planned) -> bool:
    """Whether a pass that reads neighbours does so in vectors: of rows without gaps, all of whose operands move so."""
    assert isinstance(call.unit, RowLayout) and isinstance(plan, rows.RowPlan)
    walk = plan.steps[0][0]
    whole = all(walk.wide >> k & 1 for k, o in enumerate(call.unit.operands) if o.element and o.role != "index")
    flat = walk.rank == walk.row_rank == 1 and not walk.index64
    return walk.vec > 1 and whole and flat and all(plan.strides[k][-1] == 1 for k in call.unit.near)


def whole_or_one(*given: Any, real: Any = rows.side_by_side) -> tuple[int, int, int]:
    """As `rows.side_by_side`, where fewer rows than a vector has are taken one by one."""
    return found if (found := real(*given))[0] == found[1] else (found[0], 1, 0)


def rows_alike(call: Call, file: File) -> str:
    """Hold a call of a pass over rows to the runtime's plan; which of them it is."""
    assert isinstance(call.unit, RowLayout)
    noted = file.call(call.entry, call.arch, len(call.outer), call.sizes, call.pointers).splitlines()
    asked: list[Any] = []
    asks: list[Any] = []
    launcher = nvrtc.CudaLauncher("", backend("cuda").layout(call.kernel))
    launcher.arch = call.arch
    split = len(call.outer)
    operands = [(address, tuple(s[:split]), tuple(s[split:]), size) for address, s, size in call.given]
    real = nvrtc.row_plan
    noting = mock.patch.object(nvrtc, "row_plan", lambda *a: asks.append(a) or asked.append(real(*a)) or asked[0])
    with mock.patch.object(launcher, "function", lambda *_: None), noting, mock.patch.object(nvrtc, "room", room):
        made = launcher.rows(call.number, call.binding, tuple(call.outer), tuple(call.inner), operands, [], [], 0)
    planned = fitted(asked[0], call.unit)
    assert made is not None and len(asked) == 1
    assert [step.grid for step in made.steps] == [grid for _, grid, *_ in planned.launches]
    assert [step.follows for step in made.steps] == [k > 0 and limits(call.arch).cluster > 0 for k in range(len(made.steps))]
    # A file has few kernels of a pass that reads neighbours, which all others find one by one, and of short rows and columns for one kind of
    # vectors; none of rows that move as one piece of a block, of vectors over the ends of lines, or for narrow columns; it keeps all it can.
    def without(vectors: Any = strided.vectors, **others: Any) -> Any:
        lying = mock.patch.multiple(strided, vectors=vectors, straddling=vectors, released=lambda *_: frozenset(), **others)
        fewer = mock.patch.multiple(rows, cached=rows.plan, _staged=lambda *_: None, _narrow=lambda *_: None, side_by_side=whole_or_one)
        with lying, fewer, mock.patch.object(rounds, "cached", rounds.plan):
            return real(*asks[0])

    planned = without()
    if isinstance(planned, rows.RowPlan):
        if call.unit.near and not in_lines(call, planned):
            planned = without(lambda *_: (1, False, 0))
        elif len(planned.sizes) == 1 and planned.n < SHORT:
            planned = without(narrower=lambda vec, steps: 1 if any(s % vec for s in steps) else vec)
    planned = fitted(planned, call.unit)
    is_same(noted, planned, call.arch)
    walk, under = planned.launches[0][0], planned.under if isinstance(planned, rounds.RoundsPlan) else planned
    assert all(("Nearby<" in line) == bool(call.unit.near) for line in noted if "Walk = " in line), noted
    dims = "flat" if len(under.sizes) == len(under.row_sizes) == 1 else "of many dims"
    follows = walk.stages is not None and not call.unit.columns
    return f"rows, {dims}, {walk.vec > 1} {walk.across} {walk.keep} {walk.cluster} {len(planned.launches) > 1}{', following' * follows}{', in turns' * (walk.step < -1)}{', abreast' * (walk.abreast > 1)}{', apart' * (walk.abreast == 1)}"


def map_alike(call: Call, file: File) -> str:
    """The same of a map."""
    (line,) = file.call(call.entry, call.arch, None, call.sizes, call.pointers).splitlines()
    strides, itemsizes, addresses = ([given[k] for given in call.given] for k in (1, 2, 0))
    unit = call.unit
    near = unit.taps, unit.below, bool(unit.reaches), unit.row, unit.divides, unit.along, unit.shares, unit.otherwise
    planned = maps.plan(call.sizes, strides, itemsizes, addresses, unit.held, *near)
    assert planned is not None
    tiled = tiles.plan(planned.sizes, planned.strides, tuple(itemsizes), tuple(addresses), unit.turned) if unit.turned and (planned.variant.vec == 1 or planned.variant.splat >= FLAT) else None
    if tiled is not None:
        return tiles_alike(line, tiled)
    assert "Tiles<" not in line
    values, given = noted_numbers(line), 2**64 - 1
    found = re.search(r"RANK = (\d+); int VEC = (\d+); Index = ([\w ]+); (?:\w+ )+SPLAT = (\d+)(?:; int ROWS = (\d+))?", line)
    assert found
    want, rank, splat = maps.layout(planned), len(values["size"]), int(found[4])
    assert values["launch"] == [planned.grid, nvrtc.THREADS, 1, 0, 0] and values["n"] == [want.n]
    assert int(found[2]) == planned.variant.vec and int(found[5] or 1) == planned.variant.rows and (splat in (planned.variant.splat, given) or splat == FLAT | TOLD and planned.variant.splat >= FLAT)
    assert "long" in found[3] or not planned.variant.wide
    assert values["size"] == padded(list(want.size), rank, 1)
    assert values["stride"] == [s for own in want.stride for s in padded(list(own), rank, 0)]
    if unit.reaches:
        return f"windows of {planned.variant.rows} rows{' below' * planned.under}, {planned.variant.vec} lanes"
    if planned.variant.splat >= FLAT:
        return "map, flat vectors"
    return f"map, vectors of {planned.variant.rows} rows{', given' * (splat == given)}" if planned.variant.vec > 1 else "map"


def tiles_alike(line: str, plan: tiles.TilePlan) -> str:
    """The same of one that takes tiles."""
    values, found = noted_numbers(line), re.search(r"RANK = (\d+); int VEC = (\d+); Index = [\w ]+; bool GATHERS = (\w+)", line)
    assert found and (int(found[2]), found[3] == "true") == plan.variant[1:]
    want, rank = plan.layout(), len(values["size"])
    assert values["launch"] == [plan.grid, nvrtc.THREADS, 1, 0, 0] and values["n"] == [want.n]
    assert values["size"] == padded(plan.sizes, rank, 1)
    assert values["stride"] == [s for own in plan.strides for s in padded(own, rank, 0)]
    assert values["tiles"] == [*want.many, *want.extent, *want.inverse, want.each, want.shift, want.mask]
    return f"tiles, vectors {plan.variant.vec > 1}, {plan.variant.gathers}, {plan.each < plan.variant.vec}"


def test_the_runtime_and_a_written_file_launch_alike(file: File, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A thousand random calls of rows and maps, and more of maps: sizes, strides, alignments, dtypes, passes and architectures."""
    monkeypatch.setenv("KGEN_CONFIG_DIR", str(tmp_path))
    tuned.ladders.cache_clear()
    seen: Counter[str] = Counter()
    for seed in range(1800):
        call = Call(random.Random(seed), file, seed >= 1000)
        try:
            seen[rows_alike(call, file) if isinstance(call.unit, RowLayout) else map_alike(call, file)] += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {call.entry} on {call.arch}, {call.outer} {call.inner}, {call.given}") from error
    assert sum(n for what, n in seen.items() if "flat" in what) > 300 and seen["map, vectors of 1 rows"] > 40 and seen["map, vectors of 4 rows"], seen
    assert seen["map, flat vectors"] and seen["map, vectors of 1 rows, given"] > 20 and seen["map, vectors of 4 rows, given"], seen
    assert any("in turns" in what for what in seen), seen
    assert all(seen[f"windows of {what}"] for what in ("1 rows, 1 lanes", "1 rows, 4 lanes", "4 rows, 1 lanes", "8 rows, 1 lanes", "8 rows below, 1 lanes", "8 rows below, 4 lanes")), seen
    assert all(seen[f"tiles, vectors {what}"] for what in ("False, True, False", "True, False, True", "True, True, False", "True, True, True")), seen
    assert len(seen) >= 20, seen  # in registers, in shared memory, in that of a cluster, by several launches


def test_rows_that_a_thread_takes_abreast_are_launched_alike(file: File) -> None:
    """Those that lie side by side in whole vectors, of one dim and of several, and those that do not; and channels, which are read in segments."""
    seen: Counter[str] = Counter()
    channels = {rows_alike(Call(random.Random(seed), file, of=("slopes", "channels")), file) for seed in range(1200)}
    assert {f"rows, of many dims, {vectors} False 0 False True" for vectors in (True, False)} <= channels, channels
    for seed in range(300):
        call = Call(random.Random(seed), file, of=("upright", "downright"))
        seen[rows_alike(call, file)] += 1
    assert sum(n for what, n in seen.items() if "abreast" in what) > 30, seen
    assert any("abreast" in what and "many dims" in what for what in seen) and sum(n for what, n in seen.items() if "apart" in what) > 30, seen


def test_what_is_built_for_earlier_devices_does_not_begin_early(file: File) -> None:
    """PTX of sm_80 runs on an sm_90, and its kernels do not wait for the launch before."""
    n, follows = 1 << 22, {}  # one row, of which segments are launched
    operands = {name: (4096, [n, 1]) for name in ("x", "y")}
    for arch, built in (("sm_90", "sm_90"), ("sm_90", "sm_80"), ("sm_80", "sm_80")):
        lines = file.call("softmax_f32", arch, 1, [1, n], operands, built).splitlines()
        follows[arch, built] = [noted_numbers(line)["launch"][4] for line in lines if not line.startswith("work")]
    assert len(follows["sm_90", "sm_90"]) > 1 and follows["sm_90", "sm_90"] == [0] + [1] * (len(follows["sm_90", "sm_90"]) - 1)
    assert not any(follows["sm_90", "sm_80"]) and not any(follows["sm_80", "sm_80"])


def test_a_file_has_few_kernels_of_a_pass_that_reads_neighbours(file: File) -> None:
    """Each takes nvcc as long as it has neighbours: of 144 it took 90 seconds."""
    names = set(re.findall(r" (?:void )?nears_kernel<.*", subprocess.run(["nm", "-C", file.library._name], capture_output=True, text=True).stdout))
    assert 10 < len(names) <= 48, sorted(names)


def test_rows_that_follow_one_another_are_launched_alike(file: File, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Long rows with one and with two parameters of columns, and two operands without any, of any lengths, few and many, also beyond 32
    bits and of two dims."""
    monkeypatch.setenv("KGEN_CONFIG_DIR", str(tmp_path))
    tuned.ladders.cache_clear()
    seen: Counter[tuple] = Counter()
    lengths = (1000, 1001, 2001, 3001, 5001, 6001, 10001, 16001, 16384, 32768, 32001, 50257, 40000, 50176, 65536, 65544, 98304, 131072, 262144, 262152, 524288)
    for name, n, arch, dtype, many in itertools.product(("again", "scaled", "slope", "softmax"), lengths, ARCHES, ("bf16", "f32"), ((1,), (9, 600), (70000,))):
        (unit,) = backend("cuda").layout(file.kernels[name])
        size = DTYPES[dtype].bytes
        outer = [(many[-1] * n + 8, n + 64 * (len(many) - 1)), (many[-1], 1), (0, 0)]
        steps = [outer[1 if not o.element else 2 if o.dims == ("N",) else 0][-len(many) :] for o in unit.operands]
        pointers = {o.name: (4096, [*own, 1][: len(many) + o.element]) for o, own in zip(unit.operands, steps, strict=True)}
        noted = file.call(f"{name}_{dtype}", arch, len(many), [*many, n], pointers).splitlines()
        given = [(0, own, (1,) if o.element else (0,), size if o.element else 4) for o, own in zip(unit.operands, steps, strict=True)]
        planned = nvrtc.row_plan(unit, many, (n,), given, 0, arch)
        assert planned is not None
        planned = fitted(planned, unit)
        is_same(noted, planned, arch)
        if isinstance(planned, rounds.RoundsPlan):
            seen[name, arch, dtype, n] += 1
    assert {("again", "sm_90", "bf16", 65536), ("again", "sm_90", "f32", 32768), ("scaled", "sm_90", "f32", 262144),
            ("slope", "sm_90", "f32", 262144)} <= set(seen), seen
    assert {("again", "sm_90", "bf16", 32001), ("again", "sm_90", "bf16", 50257), ("again", "sm_90", "f32", 50257)} <= set(seen), seen
    short = {("bf16", n) for n in (1001, 2001, 3001, 5001, 6001, 10001, 16001)} | {("f32", n) for n in (2001, 5001, 6001, 10001, 16001)}
    assert {("again", arch, *one) for arch in ("sm_90", "sm_100") for one in short} == {key for key in seen if key[3] < 32000} and not any(arch == "sm_80" for _, arch, *_ in seen), seen
    assert all(count == (2 if key[3] % 8 else 3) for key, count in seen.items()), seen  # rows that begin anywhere have one dim


def test_show_prints_the_launches_of_a_written_file(file: File, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KGEN_CONFIG_DIR", str(tmp_path))
    tuned.ladders.cache_clear()
    for name, arch in itertools.product(("softmax", "again", "total"), ARCHES):
        kernel = file.kernels[name]
        lines = show(kernel, "launch", "cuda", {v: DTYPES["bf16"] for v in kernel.variables}, arch).splitlines()
        for line in lines[2:]:
            n, threads, _, vectors, elements, _, cluster, shared, segments, launches = (x if x.isalpha() else int(x) for x in line.split())
            strides = [n, 1]
            pointers = {o.name: (4096, strides if set(o.dims) == {ELLIPSIS, "N"} else [0, 1] if o.dims == ("N",) else [1, 0])
                        for o in backend("cuda").layout(kernel)[0].operands}  # fmt: skip
            noted = file.call(f"{name}_bf16", arch, 1, [1024, n], pointers).splitlines()
            notes = [launched(text)[0] for text in noted if not text.startswith("work")]
            asked = [(threads, cluster, shared, vectors, elements, segments)] * launches
            if launches == 3:  # the last one stores, whoever has read
                asked[-1] = STORING[0], cluster, shared, STORING[1], elements, segments
            assert [(x[1], x[2], x[3], x[6][2], x[6][3], x[11] // x[2]) for x in notes] == asked
