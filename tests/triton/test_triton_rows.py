"""Emitted Triton modules that reduce: which kernel a call launches, what it compiles to, and what it computes under the interpreter."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
triton = pytest.importorskip("triton", reason="triton is not installed")
from triton.compiler import ASTSource  # noqa: E402

from kgen.backends import backend  # noqa: E402
from kgen.runtime import toolchain  # noqa: E402
from kgen.testing import cases  # noqa: E402
from kgen.types import f32, f64  # noqa: E402
from tests import warm  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.programs import PROGRAMS  # noqa: E402
from tests.triton.test_triton_source import POINTERS, SPECS, TARGETS, TRICKY, check, emit, syntax  # noqa: E402

MORE = {
    "two": "two(x: T[M, N]) -> y: T[M, N]\ny = x / sum[M](x) / sum[N](x)",
    "both": "both(x: T[M, N], p: f32[M, N]) -> (i: i64[], p': f32[M, N])\ni = argmax[M, N](x)\np' = p * max[N](p)",
    "bare": "bare(x: T[N]) -> (k: i64[], s: T32[])\nk = max[N](index[N] * 3)\ns = sum[N](x * 0.5) + mean[N](f32(index[N]))",
    "endings": "endings(x: T[..., N], sum_all: T32[]) -> y: T[..., N]\nsum_all_ = sum[N](x - sum_all)\ny = x * sum_all_",
    "own": "own(x: T[N, D]) -> z: T[N, D]\nz = pick[D](x, index[N])",
    "embed": "embed(w: T[V, D], t: i64[...]) -> y: T[..., D]\ny = pick[V](w, t)",
    "weighted": "weighted(x: T[..., N], t: i64[..., N], w: T[V]) -> y: T[..., N]\nz = x + pick[V](w, t)\ny = z / sum[N](z)",
    "kinds": "kinds(x: f32[M, N], b: bool[M, N], k: i8[M, N]) -> (a: bool[M], c: bool[N], s: i64[M], p: i32[M], y: f32[M, N])\n"
    "a = any[N](b)\nc = all[M](b)\ns = sum[N](k)\np = i32(max[N](k))\ny = x - max[N](x)",
    "places": "places(x: T[B, M, N]) -> (i: i64[M], j: i64[B, N], k: i64[])\ni = argmax[B, N](x)\nj = argmin[M](x)\nk = argmax[B, M, N](x)",
    "products": "products(x: f64[M, N], w: T[N]) -> (p: f64[M], q: f64[N], r: T[N])\np = prod[N](x * w)\nq = min[M](x)\nr = sum[M](w * x)",
    "inplace": "inplace(x: T[..., N], p: T[...]) -> (x': T[..., N], p': T[...])\np' = p + sum[N](x * p)\nx' = x * p / max[N](abs(x))",
    "names": "row(length: T[..., ROWS], x_row: T[ROWS]) -> present: T[..., ROWS]\ninside = length - max[ROWS](length)\npresent = inside * x_row / sum[ROWS](inside)",
}  # fmt: skip


class Recorder:
    """Stands for a jit function: keeps what it would be launched with."""

    def __init__(self, function, log):
        self.function, self.log = function, log

    def __getitem__(self, grid):
        return lambda *args, **options: self.log.append((self.function, grid[0], args, options))


def record(module, name: str, args: list, **changed) -> list:
    """The launches of a call on CPU tensors; `changed` are constants of the module."""
    log: list = []
    kept = dict(vars(module))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "device_of", lambda _: contextlib.nullcontext())
        for key, value in kept.items():
            if isinstance(value, triton.JITFunction) and any(p.is_constexpr for p in value.params) and "tl.program_id" in value.src:
                patch.setattr(module, key, Recorder(value, log))
        for key, value in changed.items():
            if key in kept:
                patch.setattr(module, key, value)
        getattr(module, name)(*args)
    return log


def build(entry, target: str = "sm_90"):
    function, _, args, given = entry
    signature, constants, attrs = {}, {}, {}
    for k, p in enumerate(function.params):
        if p.is_constexpr:
            signature[p.name], constants[p.name] = "constexpr", given[p.name] if p.name in given else args[k]
        elif isinstance(args[k], torch.Tensor):
            signature[p.name] = POINTERS[str(args[k].dtype)]
            attrs |= {(k,): [["tt.divisibility", 16]]} if args[k].data_ptr() % 16 == 0 else {}
        else:
            signature[p.name] = p.annotation_type
    options = {n: given[n] for n in ("num_warps", "enable_fp_fusion")} | ({} if target.startswith("gfx") else {"enable_reflect_ftz": False})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = triton.compile(ASTSource(function, signature, constants, attrs), target=TARGETS[target], options=options)
    if not target.startswith("gfx"):
        assert not re.findall(r"\b(?:mul|add|sub)\.f(?:32|64)\b", made.asm["ptx"]), "these ptxas may fuse"
    return made


def spec(name: str) -> str:
    return next(p for p in SPECS if p.stem == name).read_text()


def rows(*shape: int, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("name", "args", "kernels"),
    [
        ("softmax", [rows(8, 4096)], ["softmax_row"]),
        ("softmax", [rows(8, 32768)], ["softmax_row"]),
        ("softmax", [rows(8, 65536)], ["softmax_row"]),
        ("softmax", [rows(8, 65536, dtype=torch.float32)], ["softmax_split"] * 2),
        ("softmax", [rows(1000, 65537)], ["softmax_loop"]),
        ("softmax", [rows(8, 65537)], ["softmax_split"] * 2),
        ("cross_entropy", [rows(1000, 65536), torch.zeros(1000, dtype=torch.int64)], ["cross_entropy_loop"]),
        ("softmax", [rows(0, 8)], []),
        ("softmax", [rows(8, 0)], ["softmax_row"]),
        ("frobenius", [rows(1 << 20)], ["frobenius_split"] * 2),
        ("frobenius", [rows(8, 64)], ["frobenius_row"]),
        ("sum_of_squares_cols", [rows(1 << 12, 1 << 12)], ["sum_of_squares_cols_split"] * 2),
        ("sum_of_squares_cols", [rows(64, 1 << 12)], ["sum_of_squares_cols_row"]),
    ],
)
def test_the_schedule_follows_from_the_row_and_how_many_there_are(name, args, kernels, tmp_path):
    module = emit(spec(name), tmp_path, name)
    launches = record(module, name, args)
    assert [function.__name__ for function, *_ in launches] == kernels
    assert all(grid > 0 for _, grid, *_ in launches)


@pytest.mark.parametrize("length", [1, 33, 1000, 65536, 131075])
def test_the_tile_does_not_depend_on_the_number_of_rows(length, tmp_path):
    module = emit(spec("softmax"), tmp_path, "softmax")
    seen = set()
    for count in (1, 3, 1000):
        base = torch.empty(count, length, dtype=torch.bfloat16, device="meta")
        first = record(module, "softmax", [torch.empty_strided(base.shape, base.stride(), dtype=base.dtype)])[0][3]
        seen.add(tuple(str(first.get(key)) for key in ("ROWS", "BLOCK", "SEGMENT", "num_warps", "VECTORS", "INDEX")))
    assert len(seen) == 1


@pytest.mark.parametrize(("dtype", "length"), [(torch.bfloat16, 4096), (torch.float32, 4096), (torch.bfloat16, 65536)])
def test_whole_rows_are_loaded_once_by_16_bytes(dtype, length, tmp_path):
    module = emit(spec("softmax"), tmp_path, "softmax")
    (entry,) = record(module, "softmax", [rows(8, length, dtype=dtype)])
    ptx = build(entry).asm["ptx"]
    each = length // (32 * entry[3]["num_warps"]) * dtype.itemsize // 16
    assert len(re.findall(r"ld\.global[a-z0-9.:]*\.v4\.b32", ptx)) == len(re.findall(r"ld\.global", ptx)) == each
    assert len(re.findall(r"st\.global[a-z0-9.:]*\.v4\.b32", ptx)) == each


def test_a_place_is_looked_for_in_32_bits_and_without_masks(tmp_path):
    """Of 64 bits, and with masks, it took twice as long as the row's loads."""
    module = emit(spec("argmax"), tmp_path, "argmax")
    (entry,) = record(module, "argmax", [rows(8, 1024)])
    assert entry[3]["FULL"]
    ptx = build(entry).asm["ptx"]
    assert not re.findall(r"\b(?:min|selp)\.[a-z]64", ptx) and len(re.findall(r"\b(?:and|or)\.pred", ptx)) < 64


@pytest.mark.parametrize("length, segment", [(65536, 8192), (262144, 16384), (1 << 20, 32768)])
def test_what_a_warp_reads_of_a_long_row_is_combined_in_one_order(length, segment, tmp_path):
    """Loops combine one segment after the other, and so do launches for few rows up to 16 of them; of more there are launches alone."""
    module = emit(spec("logsumexp"), tmp_path, "logsumexp")
    for count in (1, 1000):
        x = torch.empty(length, dtype=torch.bfloat16).expand(count, length)
        function, _, _, options = record(module, "logsumexp", [x])[0]
        assert (options["SEGMENT"], options["num_warps"]) == (segment, 1)
        assert function.__name__ == ("logsumexp_loop" if count == 1000 and length <= 16 * segment else "logsumexp_split")


def test_columns_are_read_by_16_bytes(tmp_path):
    module = emit(spec("sum_of_squares_cols"), tmp_path, "cols")
    entry = record(module, "sum_of_squares_cols", [rows(1 << 12, 1 << 12)])[0]
    assert entry[3]["KINDS"] == ("across", "across")
    assert re.search(r"ld\.global[a-z0-9.:]*\.v4\.b32|cp\.async\S* \[.*\], \[.*\], 0x10", build(entry).asm["ptx"])


@pytest.mark.parametrize("length", [1, 33, 64, 65, 4097, 2**20 + 1])
def test_a_tile_that_no_load_lays_out_is_small(length, tmp_path):
    """Triton 3.6 gives each thread a whole row of such a tile, and its compilers took minutes over 1,024 elements."""
    module = emit(MORE["bare"], tmp_path, "bare")
    for entry in record(module, "bare", [rows(length)]):
        assert entry[3]["BLOCK"] <= 64
        parts, segment = entry[3].get("PARTS"), entry[3].get("SEGMENT", length)
        assert parts is None or 16 * parts * segment >= length


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("count", [15, 16, 47, 63, 64, 72, 28001])
def test_a_layout_has_vectors_only_where_masks_hold_them_whole(dtype: torch.dtype, count: int, tmp_path: Path):
    """A vector that a mask may cut is loaded element by element, and its layout is for nothing; worse, of rows in two layouts LLVM (of
    Triton 3.6) added one's lane to the other's: rows 0, 8, 16, ... of 63 were read elsewhere."""
    text = "across(x: T[..., N], y: i8[N]) -> (k: T[N], t: f64[..., N])\nk = max[...](x)\nt = f64(y) % min(x, k)"
    module = emit(text, tmp_path, "across")
    y = torch.ones(count, dtype=torch.int8)
    for x in (torch.randn(count).to(dtype).expand(15, count), torch.randn(15, count + 8).to(dtype)[:, :count], torch.randn(16, count).to(dtype)):
        for _, _, _, options in record(module, "across", [x, y]):
            assert all(count % n == 0 for n in options["VECTORS"]), options
            assert max(options["EVEN"]) == max(options["VECTORS"])


def test_a_small_16_bit_number_is_rounded_once():
    """Triton's own literal is 0 for the first and 1 for the second, which lies above the middle of two bf16s."""
    kernel = check_kernel("f(x: T[N]) -> (y: bf16[N], z: bf16[N])\ny = bf16(1e-38)\nz = bf16(1.00390625001)")
    ((_, ptx),) = toolchain._triton(kernel, {"T": f32}, "sm_90", "ptx")
    for bits in (0x006D, 0x3F81):
        assert re.search(rf"mov\.b(16|32)\s+%\w+, ({bits}|{bits * 0x10001});", ptx), hex(bits)


def test_a_number_beside_a_comparison_has_the_dtype_that_it_is_compared_in():
    """To Triton it is an f32: of f64s 0.001 was less than 0.001."""
    kernel = check_kernel("f(x: T[N]) -> y: T[N]\ny = x + (x < 1e-3) + (x > 0.5)")
    text = backend("triton").render(kernel)
    assert "x < tl.full([], 0.001, F)" in text and "x > 0.5" in text


def test_a_number_that_is_stored_beside_places_has_its_dtype():
    """To Triton a bare one is an f32: of tanh(0.25) in f64 the last 29 bits were lost where the pass reads a place."""
    kernel = check_kernel("f(x: T[N]) -> (y: T[], z: T[])\ny = x[N = 0]\nz = tanh(0.25)")
    ((_, ptx),) = toolchain._triton(kernel, {"T": f64}, "sm_90", "ptx")
    assert str(0x3FCF597EA69A1C86) in ptx


def test_positions_are_not_known_where_functions_of_them_are_computed():
    """The greatest of a function of numbers that places choose: were these known to a thread, ptxas would compute the function itself, to
    other bits than another kernel has from the hardware."""
    text = "f(x: T[N, 2]) -> y: T[N, 2]\nh[2 = 0] = f32(1)\nh[2 = 1] = f32(0.001)\ny = sigmoid(h) if sigmoid(h) == max[2](sigmoid(h)) else x"
    made = dict(toolchain._triton(check_kernel(text), {"T": f32}, "sm_90", "ptx"))
    for name, ptx in made.items():
        taken = re.findall(r"ex2\.approx\.ftz\.f32\s+%\w+, (%\w+);", ptx)
        assert taken and not {*taken} & {*re.findall(r"mov\.b32\s+(%\w+), 0f", ptx)}, name


def test_names_of_the_templates_give_way(tmp_path):
    module = emit(MORE["names"], tmp_path, "names")
    function = next(v for k, v in vars(module).items() if k.rstrip("_") == "row" and callable(v) and not hasattr(v, "params"))
    build(record(module, function.__name__, [rows(3, 8), rows(8)])[0])


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [*(p.stem for p in SPECS), *MORE])
def test_every_form_compiles_everywhere(name, target, tmp_path):
    text = MORE.get(name) or spec(name)
    module = emit(text, tmp_path, name)
    kernel = check(syntax.parse(text, name))
    if "launch_rows" not in vars(module) or name == "names":
        pytest.skip("no reduction")
    for changed in ({}, {"RESIDENT": 2, "FEW": 0}, {"RESIDENT": 2, "FEW": 1 << 40}):
        for seed in (1, 2):
            arguments = cases.Draw(kernel, seed, 4).arguments()
            for entry in record(module, kernel.name, list(arguments.values()), **changed):
                build(entry, target)


def test_host_functions_and_rows_under_the_interpreter(tmp_path):
    """In one process: it imports torch and Triton for as long as either takes."""
    for name in ("affine", "scaled", "adamish", "middle", "turned", "passes", "position", "bools", "into", "forget", "nasty", "wide"):
        emit(TRICKY[name], tmp_path, name)
    for name in ("inplace", "places", "products", "embed", "two", "bare"):
        emit(MORE[name], tmp_path, name)
    for name, kernel in (("ae", "all and each"), ("aa", "place among all"), ("cd", "in the dtype computed in")):
        emit(PROGRAMS[kernel], tmp_path, name)
    scripts = [str(Path(__file__).with_name(name)) for name in ("interpreted.py", "interpreted_rows.py")]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    code = f"import runpy\nfor path in {scripts}: runpy.run_path(path)"
    done = warm.run("-c", code, tmp_path, env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": paths})
    assert done.stdout == "ok\nok\n", done.stderr[-3000:]


def test_a_reading_is_passed_what_a_comment_seems_to_assign():
    """A parameter `sum_all` is `sum_all_` in the source, as the equation's own name stands in the comment above its code."""
    kernel = check_kernel(MORE["endings"])
    assert toolchain._triton(kernel, {"T": f32}, "sm_90", "ptx")


def test_an_element_that_all_rows_pick_compiles():
    kernel = check_kernel(PROGRAMS["picked beside its tensor"])
    assert [name for name, _ in toolchain._triton(kernel, {"T": f32}, "sm_90", "ptx")] == ["pb_a_kernel", "pb_b_kernel"]


def check_kernel(text: str):
    return check(syntax.parse(text, "<text>"))


@pytest.mark.parametrize("text", ["wide(x: T[N, M], w: f64[N]) -> y: T[N, M]\ny = x - max[M](x * w)", "named(x: T[N, M]) -> y: T[N, M]\ny = T(x - max[M](f64(x)))"])
def test_a_tile_of_what_is_computed_in_f64_fits_the_shared_memory(text: str, tmp_path: Path) -> None:
    """A change of layout puts a whole tile there; the device has 227 KiB."""
    name = text.split("(")[0]
    x, w = torch.randn(2, 20_000).half(), torch.randn(2).double()
    for _, _, _, options in record(emit(text, tmp_path, name), name, [x] if name == "named" else [x, w]):
        assert options["ROWS"] * options.get("BLOCK", 1) * 8 <= 227 * 1024
