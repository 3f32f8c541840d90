"""What generated code gets wrong most often, one test for each kind: values by their bits, instructions, plans; no kept copies of text.

The bugs of `bugs.py` are planted in a copy of kgen, and these tests (among others) must find them there.
"""

from __future__ import annotations

import ctypes
import itertools
import random
import re
import shutil
import subprocess
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen import check, host, syntax  # noqa: E402
from kgen.backends import backend  # noqa: E402
from kgen.backends.launches import map_rows  # noqa: E402
from kgen.runtime import maps as map_plans  # noqa: E402
from kgen.runtime import nvrtc, toolchain  # noqa: E402
from kgen.types import DTYPES, FLOAT  # noqa: E402

needs_cpp = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler is installed")

#: Names that C++ and Python keep for themselves, and a comment whose last letter would take the next line with it.
MAPS = r"""# Many results of one element; see C:\
maps(x: f32[..., N], template: f32[..., N], d: f64[..., N]) -> (
    greater: f32[..., N], lesser: f32[..., N], positive: f32[..., N], rest: f32[..., N], both: f32[..., N], third: f32[..., N],
    new: f32[..., N], over: f32[..., N], digits: f64[..., N], wide: f64[..., N], once: f32[..., N], half: f16[..., N], brain: bf16[..., N], cut: bf16[..., N])

greater  = max(x, template)
lesser   = min(x, template)
positive = relu(x)
rest     = x % template
both     = x * template + x
third    = x / 3
new      = x - (template - x)
over     = x / (template / x)
digits   = d * 0.1234567890123456789
wide     = x * d
once     = x * 1.000000059604644775390626
half     = d
brain    = d
cut      = x
"""
ROWS = """rows(x: f32[..., N], t: i64[...]) -> (s: f32[...], p: f32[...], top: f32[...], i: i64[...], at: f32[...])

s   = sum[N](x)
p   = prod[N](2.0 if x > 2 else 1.0)
top = max[N](x)
i   = argmax[N](x)
at  = pick[N](x, t)
"""


@pytest.fixture(scope="module")
def maps():
    return kgen.loads(MAPS)


@pytest.fixture(scope="module")
def rows():
    return kgen.loads(ROWS)


def results(kernel: kgen.Kernel, *args) -> dict[str, torch.Tensor]:
    return dict(zip([r.name for r in kernel.kernel.results], kernel(*args, target="cpp"), strict=True))


def same(got, want) -> None:
    """Bit for bit, but for the NaNs' own."""
    assert got.dtype == want.dtype and got.shape == want.shape
    alike = (got == want) & (got.signbit() == want.signbit()) | got.isnan() & want.isnan()
    assert alike.all(), (got[~alike][:5], want[~alike][:5])


SPECIAL = [0.0, -0.0, 1.0, -1.0, 3.0, -7.5, 1e-40, 3.4e38, float("inf"), float("-inf"), float("nan")]


@needs_cpp
def test_special_values_go_through_on_cpp(maps) -> None:
    x, y = (torch.tensor(v) for v in zip(*itertools.product(SPECIAL, repeat=2), strict=True))
    found = results(maps, x, y, x.double())
    rest = [host.to_dtype(host.evaluate("mod", [a, b], FLOAT), DTYPES["f32"]) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    same(found["rest"], torch.tensor(rest))  # exact for any quotient, as torch's own is not
    same(found["positive"], torch.relu(x))
    same(found["greater"] + 0.0, torch.maximum(x, y) + 0.0)  # of two zeros either
    same(found["lesser"] + 0.0, torch.minimum(x, y) + 0.0)


@needs_cpp
def test_products_and_sums_are_rounded_apart_on_cpp(maps) -> None:
    """No fma that nobody wrote, no reciprocal, no other order."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(2000, generator=generator) for _ in range(2))
    found = results(maps, x, y, x.double())
    fused = (x.double() * y.double() + x.double()).float()
    assert (fused != x * y + x).any() and (x * (1 / torch.tensor(3.0)) != x / 3).any()
    same(found["both"], x * y + x)
    same(found["third"], x / 3)


@needs_cpp
def test_operands_keep_their_brackets_on_cpp(maps) -> None:
    x, y = torch.tensor([1.0, 2.0, 5.0]), torch.tensor([4.0, 0.5, 3.0])
    found = results(maps, x, y, x.double())
    same(found["new"], x - (y - x))
    same(found["over"], x / (y / x))


@needs_cpp
def test_numbers_keep_their_digits_on_cpp(maps) -> None:
    """In f64 all 17; in f32 rounded once: a hair above the middle of two floats goes up, and by way of f64 it would not."""
    x = torch.ones(3)
    found = results(maps, x, x, x.double())
    assert found["digits"].tolist() == [0.1234567890123456789] * 3
    assert found["once"].tolist() == [1 + 2.0**-23] * 3


@needs_cpp
def test_what_meets_a_double_is_computed_in_double_on_cpp(maps) -> None:
    x, d = torch.tensor([1.0, 3.0]), torch.tensor([1 / 3, 1e-300], dtype=torch.float64)
    same(results(maps, x, x, d)["wide"], x.double() * d)


@needs_cpp
def test_sixteen_bit_results_are_rounded_once_on_cpp(maps) -> None:
    x = torch.tensor([1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-20, 1 + 3 * 2.0**-8, -1 - 2.0**-7.5, 3.4e38, 1e-40, float("nan"), float("inf")])
    hair = torch.tensor([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 2.0**-8 - 2.0**-40, 1.0, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    found = results(maps, x, x, hair)
    same(found["cut"], x.bfloat16())
    assert found["brain"].tolist()[:3] == [1 + 2.0**-7, 1.0, 1.0]
    hair = torch.tensor(
        [1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 1 + 2.0**-11 - 2.0**-40, 65519.999999, 65520.0, 2.0**-25 + 2.0**-60, 1.0, 1.0],
        dtype=torch.float64,
    )
    assert results(maps, x, x, hair)["half"].tolist()[:6] == [1 + 2.0**-10, 1.0, 1.0, 65504.0, float("inf"), 2.0**-24]


@needs_cpp
@pytest.mark.parametrize("shape", [(1,), (511,), (3, 700), (5, 4, 33), (0, 4), (4160,), (625, 64), (40_001,)])
def test_every_element_is_computed_whatever_the_strides_on_cpp(maps, shape) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator)
    for other in (
        torch.randn(shape, generator=generator),
        torch.randn(shape[-1:], generator=generator),
        torch.randn(shape[::-1], generator=generator).permute(*reversed(range(len(shape)))),
    ):
        for d in (x.double(), torch.randn((*shape, 3), generator=generator, dtype=torch.float64)[..., 1]):
            found = results(maps, x, other, d)
            same(found["both"], x * other + x)
            same(found["greater"], torch.maximum(x, other.expand(shape)))
            same(found["digits"], d * 0.1234567890123456789)


@needs_cpp
def test_reserved_words_are_renamed(maps) -> None:
    """`template` and `new` are C++'s; `lambda` and `pass` are Python's, `double` and `__x` nobody's to give."""
    assert results(maps, torch.ones(2), torch.ones(2), torch.ones(2).double())["new"].tolist() == [1, 1]
    text = "while(lambda: f32[N], pass: f32[N], double: f32[N]) -> class: f32[N]\n\ndef = lambda * pass\nclass = def + double\n"
    checked = check.check(syntax.parse(text))
    compile(backend("triton").render(checked), "while", "exec")
    for target in ("cpp", "cuda"):
        written = re.sub(r"//.*", "", backend(target).render(checked))
        assert not re.search(r"[ *&](double|class|while) *[,)=]", written)


@needs_cpp
def test_a_comment_ends_with_its_line(maps) -> None:
    for target in ("cpp", "cuda"):
        assert not [line for line in backend(target).render(maps.kernel).split("\n") if "//" in line and line.endswith(("\\", "??/"))]


@needs_cpp
@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 1000, 70_001, 200_001])
def test_rows_of_every_length_on_cpp(rows, n) -> None:
    """Small integers, so that sums are exact; all below 0, so that a 0 that slips in shows; equals, infinities, NaN."""
    generator = torch.Generator().manual_seed(n)
    x = torch.randint(-9, -1, (3, n), generator=generator).float()
    x[1] = torch.randint(1, 9, (n,), generator=generator).float()
    x[1, 40:] = x[1, 40:].clamp(max=2)
    t = torch.randint(0, n, (3,), generator=generator)
    for special in (False, True):
        if special:
            x[0, n // 2 :: 7], x[2, -1] = float("nan"), float("inf")
        for view in (x, x.T.contiguous().T, x[:, ::2][:, : max(1, n // 2)]):
            at = t.clamp(max=view.shape[1] - 1)
            found = results(rows, view, at)
            same(found["s"], view.sum(-1))
            same(found["p"], torch.where(view > 2, 2.0, 1.0).prod(-1))
            same(found["top"], view.amax(-1))
            same(found["i"].float(), view.argmax(-1).float())
            same(found["at"], view.gather(-1, at[:, None])[:, 0])


@needs_cpp
def test_what_is_picked_outside_is_nan(rows) -> None:
    x = torch.arange(12.0).view(4, 3)
    assert results(rows, x, torch.tensor([3, -1, 2, 2**40]))["at"].isnan().tolist() == [True, True, False, True]


def test_a_variance_far_from_zero_keeps_its_digits() -> None:
    x = torch.randn(2, 5000, generator=torch.Generator().manual_seed(2)) + 1e4
    found = kgen.loads("f(x: f32[..., N]) -> y: f32[...]\n\ny = var[N](x)\n")(x, target="torch")
    want = x.double().var(-1)
    assert ((found - want).abs() < 1e-4 * want).all()


def test_a_mean_over_two_dims_counts_both() -> None:
    mean = kgen.loads("f(x: f32[M, N]) -> y: f32[]\n\ny = mean[M, N](x)\n")
    from kgen.expand import expand
    from kgen.lower import lower

    sizes = [let.expr.attrs for let in expand(lower(mean.kernel, {})).lets if let.expr.name == "size"]
    assert sizes == [("M",), ("N",)]


# ---------------------------------------------------------------------------------------------------------------- CUDA


def test_cuda_is_compiled_for_exact_arithmetic(tmp_path) -> None:
    """What NVRTC and nvcc are told, and (where nvcc is) what PTX they make: no fma, divisions and roots to nearest, denormals kept."""
    for options in (nvrtc.OPTIONS, toolchain.NVCC):
        assert {"-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false"} <= set(options)
        assert "--use_fast_math" not in options and "-use_fast_math" not in options
    if shutil.which("nvcc") is None:
        return
    device = "__global__ void k(float* x, float a) { x[0] = x[1] * a + x[2]; x[3] = x[4] / a; x[5] = sqrtf(x[6]); }"
    (tmp_path / "k.cu").write_text(device)
    subprocess.run(["nvcc", *nvrtc.OPTIONS, "-ptx", "-arch=sm_80", "-o", str(tmp_path / "k.ptx"), str(tmp_path / "k.cu")], check=True)
    ptx = (tmp_path / "k.ptx").read_text()
    assert "fma" not in ptx and ".ftz" not in ptx and "div.rn.f32" in ptx and "sqrt.rn.f32" in ptx


HOST = """
#include <climits>
#include <cstdint>
#include <utility>
using i64 = long long;
using u64 = unsigned long long;
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_the_launcher_in_the_source_plans_as_python_does(tmp_path) -> None:
    """The plan of a map in the emitted source's own host part, and the one by which kgen launches it."""
    text = backend("cuda").render(check.check(syntax.parse("f(x: f32[N], y: f32[N]) -> z: f32[N]\n\nz = x * y\n")))
    parts = (r"constexpr int SPLATS.*?\n", r"constexpr int window_lanes.*?\n", r"template <int K> struct Dims \{.*?\n\};", r"constexpr int map_rows.*?(?=// No bytes)", r"struct Operand \{.*?\n(?=template <int RANK)")
    plan = "\n".join(re.search(part, text, flags=re.S).group() for part in parts)
    entry = """
    extern "C" void plan(int rank, const i64* size, const i64* const* stride, const i64* address, i64* found) {
        const Operand operands[] = {{(void*)address[0], stride[0], 4}, {(void*)address[1], stride[1], 4}, {(void*)address[2], stride[2], 4}};
        const Plan<3> p(rank, size, operands, 0);
        found[0] = p.count, found[1] = p.vec, found[2] = p.wide, found[3] = i64(p.splat), found[4] = p.rank;
    }
    extern "C" int rows_of(int vec) { return map_rows(vec); }"""
    (tmp_path / "plan.cpp").write_text(HOST + plan + entry)
    subprocess.run(
        ["g++", "-O0", "-std=c++17", "-w", "-shared", "-fPIC", "-o", str(tmp_path / "plan.so"), str(tmp_path / "plan.cpp")], check=True
    )
    library = ctypes.CDLL(str(tmp_path / "plan.so"))
    assert all(library.rows_of(vec) == map_rows(vec) for vec in (1, 2, 4, 8, 16))
    call = library.plan
    draw = random.Random(0)
    seen = set()
    for _ in range(600):
        sizes = [draw.choice([1, 2, 4, 8, 24, 2**20]) for _ in range(draw.randint(1, 3))]
        strides = []
        for _ in range(3):
            row, step = [0] * len(sizes), 1
            for d in reversed(range(len(sizes))):
                row[d], step = step, step * sizes[d] + draw.choice([0, 0, 0, 1, 4, 2**33])
            strides.append([0 if draw.random() < 0.1 and len(strides) < 2 else s for s in row])
        addresses = [draw.choice([0, 0, 0, 4, 8]) for _ in range(3)]
        array = ctypes.c_longlong * len(sizes)
        kept = [array(*row) for row in strides]
        found = (ctypes.c_longlong * 5)()
        call(len(sizes), array(*sizes), (ctypes.c_void_p * 3)(*map(ctypes.addressof, kept)), (ctypes.c_longlong * 3)(*addresses), found)
        want = map_plans.plan(sizes, strides, [4] * 3, addresses)
        assert want is not None and (found[0], found[4]) == (want.n, want.variant.rank)
        assert (found[1], bool(found[2]), found[3]) == tuple(want.variant[1:4]), (sizes, strides, addresses)
        seen.add((found[1], bool(found[2])))
    assert {(1, False), (1, True), (2, False), (4, False), (4, True)} <= seen


# -------------------------------------------------------------------------------------------------------------- Triton


@pytest.fixture(scope="module")
def emitted(tmp_path_factory):
    """A pass over rows and a map, as Triton modules."""
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.triton.test_triton_source import emit

    folder = tmp_path_factory.mktemp("emitted")
    texts = {
        "rows": "rows(x: f32[..., N], w: f32[N]) -> y: f32[..., N]\n\ny = sqrt(x * w + max[N](x)) / w + floor(w)\n",
        "map": "map(x: f32[..., N], w: f32[N]) -> y: f32[..., N]\n\ny = x * w\n",
    }
    return {name: emit(text, folder, name) for name, text in texts.items()}


def launches(module, *args, **changed) -> list:
    from tests.triton.test_triton_rows import record

    (name,) = [
        n for n in ("rows", "map", "rows_", "map_") if callable(getattr(module, n, None)) and not hasattr(getattr(module, n), "params")
    ]
    return record(module, name, list(args), **changed)


def test_triton_compiles_to_exact_instructions(emitted) -> None:
    """With the options of the module's own launch: NaN goes through max, quotients and roots to nearest, no fma, denormals kept."""
    import triton
    from triton.compiler import ASTSource

    from tests.triton.test_triton_source import POINTERS, TARGETS

    function, _, args, given = launches(emitted["rows"], torch.empty(8, 64), torch.empty(64))[0]
    signature, constants = {}, {}
    for k, p in enumerate(function.params):
        if p.is_constexpr:
            signature[p.name], constants[p.name] = "constexpr", given[p.name] if p.name in given else args[k]
        else:
            signature[p.name] = POINTERS[str(args[k].dtype)] if isinstance(args[k], torch.Tensor) else p.annotation_type
    options = {n: given[n] for n in ("num_warps", "enable_fp_fusion", "enable_reflect_ftz") if n in given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ptx = triton.compile(ASTSource(function, signature, constants), target=TARGETS["sm_90"], options=options).asm["ptx"]
    assert "max.NaN.f32" in ptx and not re.search(r"\bmax\.f32", ptx)
    assert "div.rn.f32" in ptx and not re.search(r"\bdiv\.(full|approx)", ptx)
    assert "sqrt.rn.f32" in ptx and "sqrt.approx" not in ptx
    assert "fma" not in ptx and ".ftz" not in ptx


def test_triton_counts_far_elements_in_64_bits(emitted) -> None:
    """By where the last element lies, not by how many there are."""
    import triton.language as tl

    anywhere = {"separate": lambda *_: None}  # these tensors have no memory that could overlap
    for name, strides, index in (
        ("map", (64, 1), tl.uint32),
        ("map", (2**33, 1), tl.uint64),
        ("rows", (1, 2), tl.int32),
        ("rows", (1, 2**28), tl.int64),
    ):
        x = torch.empty_strided((2, 64), strides, device="meta")
        _, _, args, given = launches(emitted[name], x, torch.empty(64, device="meta"), **anywhere)[0]
        assert index in [a for a in (*args, *given.values()) if isinstance(a, tl.dtype)], (name, strides)


def test_triton_takes_whole_vectors_only_where_rows_begin_with_one(emitted) -> None:
    for offset, step, vector in ((0, 64, 4), (1, 64, 1), (0, 66, 2), (0, 65, 1), (2, 64, 1)):
        base = torch.empty(8 * step + 64)
        base = base[(-base.data_ptr() // 4) % 4 :]
        x = base.as_strided((8, 64), (step, 1), base.storage_offset() + offset)
        given = launches(emitted["rows"], x, torch.empty(64))[0][3]
        assert given["VECTORS"][0] in ((vector,) if vector != 2 else (1, 2)), (offset, step)
