"""The CUDA source: it compiles without a warning, contracts nothing, moves 16 bytes a thread, and its plan and kernels,
run on the CPU, visit each element once at the right address.  No GPU is needed."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgen import check, pipeline, syntax
from kgen.backends import backend
from kgen.backends.cuda import straight
from kgen.ops import OPS
from kgen.runtime import maps, nvrtc
from tests.cuda.host import HOST_TYPES

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.k"))
FLAGS = [
    "-std=c++17",
    "-fmad=false",
    "-prec-div=true",
    "-prec-sqrt=true",
    "-ftz=false",
    "-Xcompiler",
    "-Wall,-Wextra",
    "-Werror",
    "all-warnings",
]

TRICKY = {
    "stored": """stored(x: T[N], p: f32[N], s: float) -> (m: T[N], k: i64[N], p': f32[N], z: f64[])
m = N * 2
k = N // 3
p' = s * 2
z = s + m""",
    "int": """int(n: T[..., N], x: T[..., N], stride: f32[N], xs: T[..., N], k: float, i: int, at: f32[]) -> (
    y: T[..., N], layout: f32[..., N])
run = n * k + x
y = run - xs * stride
layout = f32(y) * i + at""",
    "weird": """weird(F: T[M], I: U[M, N], n: float, lr: float, x: f32[M], x_tile: f32[M]) -> (y: T[M], w: U[M, N], q: f16[M])
y = T(U(F)) + T(lr) + n + x + x_tile
w = I * M + inf
q = f16(n) + x""",
    "F": """F(F: T[N], G: U[N], Index: f32[], K: int, RANK: f32[N]) -> H: T[N]
T_ = F + G * Index
H = T_ * K + N * RANK""",
    "widths": """widths(a: i8[N], b: u8[N], c: i16[N], d: i32[N], e: i64[N], m: bool[N], n: int) -> (
    p: i8[N], q: u8[N], r: i16[N], s: i32[N], t: i64[N], z: bool[N])
p = a * a + (a << 1) // 3 % 5 - -a if a > 3 else abs(a)
q = b + b // 2 - sign(b) + u8(clamp(n, 0, 255))
r = c ^ 3 + max(c, i16(7))
s = d // 3 + (d & 12) - (d >> 2) + i32(f32(d) * 0.5)
t = e * n + index[N] - i64(a) + N
z = m and not (a < c) or e == 3""",
    "passes": """passes(x: T[M, N], s: U[M]) -> (y: T[M, N], r: U[M], h: f16[M, N])
y = x * s + index[M] - index[N] * 2
r = s + bf16(s) + U(1e-3)
h = f16(x * 2)""",
    "blind": """blind(p: T[...], m: f32[...], g: T[...]) -> (p': T[...], m': f32[...])
m' = g * 2
p' = p - m'""",
    "fill": """fill(p: f32[...], c: float, k: int) -> p': f32[...]
p' = c^2 + sin(c) + max(c, 1) + sigmoid(c) + k // 3 + k % 5 + (k << 2) + inf""",
    "doubles": """doubles(x: f64[...], b: bf16[...], i: i64[...], h: f16[...], t: bool[...]) -> (
    y: bf16[...], z: f16[...], w: f64[...], v: bf16[...])
y = bf16(x + b)
z = f16(x) + f16(i) * h
w = x
v = bf16(i) + bf16(t) * nan - inf""",
    "cast": """cast(x: T[..., N], lr: float, k: int, i: i32[N]) -> (y: T[..., N], z: i8[..., N], b: bool[..., N])
h = T(x * lr)
y = h * T(lr) + T(k) + T(i) + f16(lr)
z = i8(clamp(round(x), -128, 127))
b = bool(x) and isnan(x) or isinf(h)""",
    "wide": """wide(s: T32[N], x: T[..., N], r: U32[N], u: U[N], n: float) -> (y: T32[..., N], h: T[..., N], s': T32[N], w: U32[N])
y = T32(r) * x
h = T(s) + x / size[...](x)
s' = s * 2
w = n""",
    "row_scale": "row_scale(x: T[M, N], s: T[M]) -> y: T[M, N]\ny = x * s",
}


def every_operator() -> str:
    """One kernel with every float operator of the table, for f32 and f64."""
    infix = dict(
        zip(
            ["add", "sub", "mul", "div", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge"],
            ["+", "-", "*", "/", "//", "%", "^", "==", "!=", "<", "<=", ">", ">="],
            strict=True,
        )
    )
    lines, results = [], []
    for k, (name, row) in enumerate(OPS.items()):
        if row.rule in ("bits", "shift", "logical", "words"):
            continue
        args = ["x", "w", "x - w"][: row.arity]
        if name == "where":
            text = "x if x > w else w"
        elif name in infix:
            text = f"x {infix[name]} w"
        else:
            text = {"neg": "-x", "pos": "+x"}.get(name, f"{name}({', '.join(args)})")
        results.append(f"r{k}: {'bool' if row.rule in ('test', 'compare') else 'T'}[...]")
        lines.append(f"r{k} = {text}")
    return f"every(x: T[...], w: T[...]) -> ({', '.join(results)})\n" + "\n".join(lines)


def kernel(text: str, name: str = "test.k"):
    return check.check(syntax.parse(text, name))


def source(text: str, name: str = "test.k") -> str:
    return backend("cuda").render(kernel(text, name))


def nvcc(path: Path, *flags: str) -> str:
    """What nvcc says of a file, "" if it is content."""
    done = subprocess.run(["nvcc", *FLAGS, *flags, str(path)], capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stdout + done.stderr) or f"exit code {done.returncode}"


def fewer_variants(text: str) -> str:
    """The host part with few kernels a binding: ptxas takes most of the time, and the others differ in numbers only."""
    text = text.replace("add_rules(arch / 10, f.vec(), false, false);", "add_rule(rules(false, f.holds()).at[6], f.vec(), false, false);")
    text = text.replace("(f.lone() ? 1 : SHORT)", "1").replace("for (int vec = f.most_vec();", "for (int vec = f.most_vec() / 32;")
    text = text.replace("if (!f.lone()) add_rules(arch / 10, 1, true, true);", "if (arch > 0) add_rule(rules(true, f.holds()).at[0], 1, true, true);")
    text = text.replace("vec = general ? vec / 2 : 0", "vec = 0").replace("chunks < ANY / 2;", "chunks < 2;")
    return re.sub(r".*(if \(plan\.wide|if \(plan\.rank (== 2|<= 2)\)|4, VEC, unsigned, SPLAT|return run_given<MOST, HELD>).*\n", "", text)


#: For tests of the host's part: no machine code, which NVRTC makes of the same kernels in tests/backends/test_compiled.py.
TO_PTX = ("-gencode", "arch=compute_90,code=compute_90")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


@pytest.mark.slow
@needs_nvcc
def test_tricky_specs_compile(tmp_path):
    """With the host's part; that of the packaged specs takes `-m slow`, and their kernels are in tests/backends/test_compiled.py."""
    made = {n: source(x, f"{n}.k") for n, x in TRICKY.items()}
    for n in made.keys() - {"widths", "row_scale"}:  # bf16 takes the way of f16
        made[n] = fewer_variants(re.sub(r'extern "C" cudaError_t \w+_f16\w*\(.*?\n\}\n', "", made[n], flags=re.S))

    path = tmp_path / "every second one.cu"  # NVRTC compiles the kernels of all, and the host's part is the library's
    path.write_text(together(dict([*made.items()][::2])))
    assert nvcc(path, *TO_PTX, "-O1", "-c", "-o", str(path.with_suffix(".o"))) == ""


def together(texts: dict[str, str]) -> str:
    """Many emitted files as one, each in a namespace of its own: nvcc reads CUDA's headers once."""
    includes = dict.fromkeys(line for x in texts.values() for line in x.splitlines() if line.startswith("#include"))
    bodies = (re.sub(r"^#include.*$", "", x, flags=re.M) for x in texts.values())
    return "\n".join([*includes, *(f"namespace spec_{n} {{\n{x}\n}}" for n, x in zip(texts, bodies, strict=True))])


@pytest.mark.slow
@needs_nvcc
def test_every_operator_compiles_with_nvcc(tmp_path):
    text = source(every_operator())
    text = re.sub(r'extern "C" cudaError_t every_b?f16\(.*?\n\}\n', "", text, flags=re.S)
    path = tmp_path / "every.cu"
    path.write_text(fewer_variants(text))
    assert nvcc(path, "-arch=sm_90", "-O1", "-Xptxas", "-O0", "-c", "-o", str(tmp_path / "every.o")) == ""


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("name", [*TRICKY, *(p.stem for p in SPECS)])
def test_compiles_whole(name, arch, tmp_path):
    path = tmp_path / f"{name}.cu"
    path.write_text(source(TRICKY.get(name) or next(p for p in SPECS if p.stem == name).read_text(), f"{name}.k"))
    assert nvcc(path, f"-arch={arch}", "-O3", "-c", "-o", str(tmp_path / "x.o")) == ""


def sass(path: Path) -> dict[str, str]:
    """The machine code of each kernel of a cubin, by mangled name."""
    tool = shutil.which("cuobjdump")
    if tool is None:
        found = [p / "triton/backends/nvidia/bin/cuobjdump" for p in map(Path, sys.path)]
        tool = next((str(p) for p in found if p.exists()), None)
    if tool is None:
        pytest.skip("cuobjdump is not installed")
    text = subprocess.run([tool, "-sass", str(path)], capture_output=True, text=True, check=True).stdout
    return {part.split()[0]: part for part in text.split("Function : ")[1:]}


@pytest.mark.slow
@needs_nvcc
def test_machine_code(tmp_path):
    path = tmp_path / "row_scale.cu"
    path.write_text(source("row_scale(x: T[M, N], s: T[M], b: T[N]) -> y: T[M, N]\ny = x * s + b * x"))
    assert nvcc(path, "-arch=sm_90", "-O3", "-cubin", "-o", str(tmp_path / "x.cubin")) == ""
    code = sass(tmp_path / "x.cubin")
    fused = {name for name, text in code.items() if re.search(r"\b[FD]FMA\b", text)}
    assert fused == {name for name in code if "4bf16" in name or "3f16" in name}, "a product and a sum are contracted for 16 bits alone"
    exact = {name: text for name, text in code.items() if f"Ly{2**64 - 1}E" not in name}
    vectors = {name: text for name, text in exact.items() if re.search(r"(4bf16|3f16)Li2ELi8E|fLi2ELi4E|dLi2ELi2E", name)}
    assert len(vectors) == 8
    for name, text in vectors.items():
        rows = int(re.search(r"Ly\d+ELi(\d)E", name)[1])
        moved = len(re.findall(r"LDG\.E\.128", text)), len(re.findall(r"STG\.E\.128", text))
        assert moved == (1 + rows, rows), f"{name}: not 16 bytes a thread and row, and of b once"


# ----------------------------------------------------------------------------------------------------------------- plan


@st.composite
def walks(draw):
    """A shape, three operands' strides (the last dense in some order), item sizes and addresses; 0 bytes is an index."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 8, 16]), max_size=4))
    strides = []
    for k in range(3):
        order, step, row = draw(st.permutations(range(len(sizes)))), 1, [0] * len(sizes)
        for d in order:
            row[d] = step
            step *= sizes[d] + draw(st.sampled_from([0, 0, 0, 1, 4]))
        if k < 2:
            row = [0 if draw(st.integers(0, 3)) == 0 else s for s in row]
        strides.append(row)
    itemsizes = [draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([0, 1, 2, 4, 8])), draw(st.sampled_from([1, 2, 4, 8]))]
    if itemsizes[1] == 0:
        along = draw(st.integers(0, len(sizes)))
        strides[1] = [int(d == along) for d in range(len(sizes))]
    addresses = [4096 + b * draw(st.sampled_from([0, 0, 0, 1, 2, 4])) if b else 0 for b in itemsizes]
    return sizes, strides, itemsizes, addresses


@settings(max_examples=200, deadline=None)
@given(walks())
def test_plan_visits_each_element_once(walk):
    sizes, strides, itemsizes, addresses = walk
    planned = maps.plan(sizes, strides, itemsizes, addresses)
    (rank, vec, wide, splat, _), seen = planned.variant, []
    assert rank == len(planned.sizes) and not wide and vec * max(size for size, row in zip(itemsizes, planned.strides, strict=True) if row[-1]) <= 16
    i = 0
    while i < planned.n:  # as the kernel does
        whole = vec if rank > 1 or planned.n - i >= vec else 1
        rest, at = i, [0, 0, 0]
        for d in reversed(range(rank)):
            outer = rest // planned.sizes[d] if d > 0 else 0
            at = [a + (rest - outer * planned.sizes[d]) * row[d] for a, row in zip(at, planned.strides, strict=True)]
            rest = outer
        for o in range(3):
            if whole > 1 and itemsizes[o] and not splat >> o & 1:
                assert (addresses[o] + at[o] * itemsizes[o]) % (vec * itemsizes[o]) == 0, "a vector is not aligned"
        steps = [row[-1] for row in planned.strides]
        for lane in range(whole):
            moves = [step if itemsizes[o] == 0 else 1 - (splat >> o & 1) for o, step in enumerate(steps)]
            seen.append(tuple(a + lane * move for a, move in zip(at, moves, strict=True)))
        i += whole
    places = itertools.product(*map(range, sizes))
    wanted = [tuple(sum(p * s for p, s in zip(place, row, strict=True)) for row in strides) for place in places]
    assert sorted(seen) == sorted(wanted)


def test_plan_edges():
    assert maps.plan([4, 0], [[0, 1]] * 2, [4, 4], [0, 0]) is None
    assert maps.plan([], [[], []], [4, 4], [0, 0]).variant == (1, 4, False, 0, 1)
    assert maps.plan([2**32], [[1]] * 2, [1, 1], [0, 0]).variant == (1, 16, True, 0, 1)
    assert maps.plan([2, 8], [[2**33, 1], [8, 1]], [2, 2], [0, 0]).variant == (2, 8, True, 0, 1)
    assert maps.plan([6, 64], [[64, 1], [1, 0], [64, 1]], [2, 2, 2], [0, 0, 0]).variant == (2, 8, False, 2, 1)
    assert maps.plan([6, 62], [[62, 1], [62, 1]], [2, 2], [0, 2]).variant == (1, 1, False, 0, 1)
    assert maps.plan([6, 62], [[64, 1], [62, 1]], [2, 2], [0, 0]).variant == (2, 2, False, 0, 1)


def test_scalars_and_layout():
    adamw = kernel((SPECS[0].parent / "adamw.k").read_text())
    (unit,) = backend("cuda").layout(adamw)
    assert [(o.name, o.role) for o in unit.operands] == [("g", "input"), ("p", "state"), ("m", "state"), ("v", "state")]
    assert unit.expression({"T": "bf16"}, 1, 4, False, 0, 1) == "adamw_kernel<bf16, 1, 4, unsigned, 0>"
    values = nvrtc.number_values(unit, {"t": 2, "lr": 0.1, "b1": 0.5, "b2": 0.75, "eps": 0.0, "wd": 0.25}, {})
    assert sorted(values) == sorted([0.5, 0.5, 0.75, 0.25, 0.75, 0.4375, 0.0, 0.25, 0.1])
    assert set(unit.scalar_dtypes({"T": "f64"})) == {"f64"} and set(unit.scalar_dtypes({"T": "bf16"})) == {"f32"}


def test_the_librarys_files_define_each_type_once():
    """Any of them may stand beside any other: a scan beside neighbours, ranges, rows."""
    files = sorted((Path(__file__).parents[2] / "templates" / "cuda" / "library").glob("*.cuh"))
    types = [(m[1], f.name) for f in files for m in re.finditer(r"^(?:template <.*> )?struct (\w+)(?: : [^{]*)? \{", f.read_text(), flags=re.M)]
    of = {name: {file for other, file in types if other == name} for name, _ in types}
    assert len(of) > 20 and not {name: where for name, where in of.items() if len(where) > 1}


def test_runtime_is_imported_lightly():
    code = "import sys, kgen.runtime.nvrtc; assert not {'torch', 'cuda', 'triton'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


# ----------------------------------------------------------------------------------------- the source, run on the CPU

SHIM = """
#include <cmath>
#include <cstring>
#define __device__
#define __noinline__
#define __global__
#define __launch_bounds__(n)
struct Dim { unsigned x; };
static Dim blockIdx, threadIdx;
template <typename F> cudaError_t cudaFuncSetAttribute(F*, int, int) { return cudaSuccess; }
template <typename F> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, F*) { return cudaSuccess; }
template <typename L, typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c, void (*kernel)(L, P...), const L& layout, A... arguments) {
    for (blockIdx.x = 0; blockIdx.x < c->gridDim.x; blockIdx.x++) {
        for (threadIdx.x = 0; threadIdx.x < c->blockDim.x; threadIdx.x++) kernel(layout, arguments...);
    }
    return cudaSuccess;
}
static int __popcll(unsigned long long i) { return __builtin_popcountll(i); }
static unsigned __activemask() { return 1; }
static bool __all_sync(unsigned, bool holds) { return holds; }
#define __builtin_assume(what)
static float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
static unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
float __double2float_rz(double);  // of the 16-bit floats, which are not here
float __ll2float_rz(long long);
float __ull2float_rz(unsigned long long);
long long __float2ll_rz(float);
unsigned long long __float2ull_rz(float);
"""


needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


def on_the_cpu(text, folder):
    """A source's library, whose kernels g++ built: a vector that is not aligned ends the process."""
    (folder / "f.cpp").write_text(HOST_TYPES + SHIM + re.sub(r"asm\(.*?\);", ";", text))
    flags = "-O1 -std=c++17 -ffp-contract=off -w -fsanitize=alignment -fno-sanitize-recover=all -static-libubsan -shared -fPIC"
    subprocess.run(["g++", *flags.split(), "-o", str(folder / "f.so"), str(folder / "f.cpp")], check=True)
    return ctypes.CDLL(str(folder / "f.so"))


@needs_gxx
def test_what_stands_still_is_known_at_run_time(tmp_path):
    """Maps of operands that are expanded along any dims, of any alignment, in vectors: no more is written than there is."""
    f = on_the_cpu(source("f(x: f32[M, N], s: f32[M, N], w: f32[N]) -> y: f32[M, N]\ny = x + s * w"), tmp_path).f
    pair, made = ctypes.c_longlong * 2, [(ctypes.c_float * 400)(*(i * (k + 3) % 101 for i in range(400))) for k in range(3)]
    moves = [lambda n: (n, 1), lambda n: (0, 1), lambda n: (1, 0), lambda n: (0, 0)]

    def begin(x, offset):
        return -ctypes.addressof(x) % 16 // 4 + offset

    def passed(x, at, strides):
        return ctypes.c_void_p(ctypes.addressof(x) + 4 * at), pair(*strides)

    for m, n, offset, *kinds in itertools.product((1, 3, 8), (1, 7, 24), (0, 1, 2), moves, moves, moves[1::2]):
        y = (ctypes.c_float * 400)(*[-1] * 400)
        strides, at = [kind(n) for kind in kinds], [begin(made[0], offset), begin(made[1], offset), begin(made[2], 0)]
        operands = [x for given in zip([*made, y], [*at, begin(y, offset)], [*strides, (n, 1)], strict=True) for x in passed(*given)]
        assert f(2, pair(m, n), *operands, None) == 0
        x, s, w = ([v[p + i * a + j * b] for i in range(m) for j in range(n)] for v, p, (a, b) in zip(made, at, strides, strict=True))
        want = [a + b * c for a, b, c in zip(x, s, w, strict=True)]
        found, end = begin(y, offset), begin(y, offset) + m * n
        assert y[found:end] == want and {*y[:found], *y[end:]} == {-1}, (m, n, offset, strides)


@needs_gxx
def test_kernels_on_the_cpu(tmp_path):
    head = "f(x: T[M, N], s: T[M], k: i8[M, N], c: float) -> (y: T[M, N], i: i64[M, N])"
    f = on_the_cpu(source(f"{head}\ny = x * s + k * c\ni = index[M] * 1000 + index[N]"), tmp_path).f_f32
    for m, n, pad, offset, turned in itertools.product((1, 3, 16), (1, 4, 7, 64), (0, 1, 4), (0, 1), (False, True)):
        row = n + pad
        strides = (1, m) if turned else (row, 1)
        span = 16 + (m * n if turned else m * row)

        def array(kind, values, offset=offset, span=span):
            made = (kind * (span + 64))(*values)
            at = (-ctypes.addressof(made)) % 64 // ctypes.sizeof(kind) + offset
            return made, at

        x, x_at = array(ctypes.c_float, [])
        k, k_at = array(ctypes.c_int8, [])
        y, y_at = array(ctypes.c_float, [-1.0] * (span + 64))
        i, i_at = array(ctypes.c_int64, [-1] * (span + 64))
        s, s_at = array(ctypes.c_float, [])
        for a, b in itertools.product(range(m), range(n)):
            where = a * strides[0] + b * strides[1]
            x[x_at + where], k[k_at + where] = a + b / 64, (a * 7 + b) % 100
            s[s_at + a] = 2 + a
        pair, pointer = ctypes.c_longlong * 2, lambda made, at: ctypes.c_void_p(ctypes.addressof(made) + at * ctypes.sizeof(made._type_))
        step = pair(*strides)
        tensors = [
            pointer(x, x_at),
            step,
            pointer(s, s_at),
            pair(1, 0),
            pointer(k, k_at),
            step,
            pointer(y, y_at),
            step,
            pointer(i, i_at),
            step,
        ]
        assert f(2, pair(m, n), *tensors, ctypes.c_double(0.5), None) == 0
        written = set()
        for a, b in itertools.product(range(m), range(n)):
            where = a * strides[0] + b * strides[1]
            written.add(where)
            assert y[y_at + where] == (a + b / 64) * (2 + a) + (a * 7 + b) % 100 * 0.5
            assert i[i_at + where] == a * 1000 + b
        assert all(y[j] == -1 for j in range(len(y)) if j - y_at not in written), "something else was written"


def test_what_a_reading_does_without_stands_behind_it():
    """A row's values that wait for memory are asked for after the row, but for what the reading needs."""
    text = "f(x: T[..., N], t: i64[...], a: T[...]) -> y: T32[...]\n\nb = pick[N](x, t)\nc = exp(a)\ny = sum[N](x * c) - b\n"
    body = source(text)
    body = body[body.index("f_kernel(") :]
    assert body.index("= exp(") < body.index("walk.template products<0") < body.index("x_at(t)")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("index[N] + 1", "index_N + i64(1)"),
        ("N - 1 - index[N]", "s0 - index_N"),
        ("abs(-(index[M] - index[N]))", "absolute(-(index_M - index_N))"),
        ("i64(a) * i64(a)", "i64(a) * i64(a)"),
        ("index[N] + k", "i64(u64(index_N) + u64(k_))"),
        ("a * 2", "i32(u32(a) * u32(2))"),
        ("max[N](i64(a)) - 2", "i64(u64(max_N) - u64(i64(2)))"),  # of an empty row it is the least integer
    ],
)
def test_integers_wrap_where_they_can_leave_their_dtype_alone(value: str, written: str) -> None:
    """Signed overflow is undefined in C++; what cannot overflow, whatever the tensors hold, is written as it is."""
    text = f"f(a: i32[M, N], k: int, x: T[M, N]) -> y: f64[M, N]\n\ny = f64({value}) * x + f64(a) * k\n"
    assert written in backend("cuda").render(check.check(syntax.parse(text)))


def test_functions_that_all_but_equal_elements_need_have_no_branch_around_them():
    """Where an element equals a number is rare, so that a warp would take the branch all the same; not so where it is compared, where an
    integer decides, or where what is chosen is read at a place of its own."""

    def source(value: str, more: str = "") -> str:
        return backend("cuda").render(check.check(syntax.parse(f"chosen(t: T[M, N]{more}) -> y: T[M]\n\ny = sum[N]({value})\n")))

    apart = "const F t0 = brief_log<T>(t);"
    taken = source("0.0 if t == 0 else t * (log(t) - log(x))", ", x: T[M, N]")
    assert apart in taken and "? F(0) : t * (t0 - t1)" in taken
    assert apart in source("t * log(t) if t != x else 0.0", ", x: T[M, N]")
    assert apart not in source("0.0 if t > 0 else t * log(t)")
    assert apart not in source("0.0 if k == 0 else t * log(t)", ", k: i64[M, N]")
    assert apart not in source("0.0 if r == 0 else t * log(t)", ", r: f32[M]")


def test_functions_of_what_is_read_at_a_place_of_its_own_stay_where_they_are():
    made = check.check(syntax.parse("chosen(x: T[M, N], k: i64[M, N]) -> y: T[M, N]\n\ny = log(x) + exp(x[N = k]) * log(x)\n"))
    lets = pipeline.program(made, dict(made.bindings()[0])).by_name
    found = {let.name: {lets[name].expr.name for name in straight(let.name, lets)} for let in lets.values()}
    assert [found[let.name] for let in lets.values() if let.expr.name in ("log", "exp")] == [{"log"}, set()]
    assert found[next(let.name for let in lets.values() if let.expr.name == "add")] == set()
