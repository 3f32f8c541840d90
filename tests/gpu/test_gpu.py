"""On a CUDA device: every spec and every operator, with Triton and with CUDA, against float64 and eager PyTorch.

`pytest -m gpu -s` prints the tables; where KGEN_EVIDENCE names a file, the rows of `kgen check`'s are added to it.
"""

from __future__ import annotations

import fcntl
import math
import os
import re

import pytest
import torch

import kgen
from kgen.testing import cases, checks, fuzz, operators
from tests.conftest import ROOT

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
SPECS = sorted(p.stem for p in (ROOT / "specs").glob("*.k"))
TARGETS = ("triton", "cuda")
PARTS = len(operators.FORMATS)

MIXED = """
mixed(x: T[..., N], i: i8[..., N], m: bool[N], d: f64[N], u: U[...]) -> (y: T[..., N], q: u8[..., N], c: bool[N], k: i64[..., N], z: f64[..., N], h: bf16[N])
y = T(x * 3) + index[N] / N if m else -x
q = u8(clamp(round(x * 127), 0, 255))
c = not m or d > 1
k = index[N] % 7 + (i64(i) << 2) - i // 3
z = x + d * u
h = sin(d)
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SPECS)
def test_random_cases_stay_within_the_derived_bound(name: str, target: str) -> None:
    kernel = kgen.load(name).kernel
    examples = 12 // (1 + kernel.reduces) // (1 + (target == "triton"))  # of what reduces, each class of sizes is compiled, by Triton for longer
    report = checks.check(kernel, target, examples)
    print("\n", "  ".join(report.row()))
    keep(report)
    assert not report.failures, report.failures[0]


def keep(report: checks.Report) -> None:
    """Add a report's row to the table of evidence, whose columns are checks.HEADS, set apart by tabs; whole whatever else writes."""
    if name := os.environ.get("KGEN_EVIDENCE"):
        with open(name, "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file.fileno()).st_size:
                file.write("\t".join(checks.HEADS) + "\n")
            file.write("\t".join(report.row()) + "\n")
            file.flush()


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_of_many_dtypes_and_passes(target: str) -> None:
    report = checks.check(kgen.loads(MIXED).kernel, target, examples=24)
    assert not report.failures, report.failures[0]


def parts() -> list:
    """Every part of the operators in every format on both targets: each part in one format on a target, the rest slow."""
    return [
        pytest.param(part, dtype, target, id=f"{target}-{dtype}-{part}", marks=() if d == (part + j) % PARTS else pytest.mark.slow)
        for j, target in enumerate(TARGETS)
        for d, dtype in enumerate(operators.FORMATS)
        for part in range(PARTS)
    ]


@pytest.mark.parametrize(("part", "dtype", "target"), parts())
def test_every_operator_over_every_16_bit_float(part: int, dtype: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And over samples of f32."""
    every = list(operators.groups())
    monkeypatch.setattr(operators, "groups", lambda: iter(every[part::PARTS]))
    monkeypatch.setattr(operators, "THIRD", (1.0, -0.5, math.nan))  # the exact values are torch's, on the CPU
    rows, failed = operators.table([target], formats=(dtype,))
    print()
    for row in (operators.HEADS, *rows):
        print("  ".join(f"{c:>10}" for c in row))
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_alignment(target: str, dtype: torch.dtype) -> None:
    kernel, base = kgen.load("silu"), torch.randn(5000, device="cuda").to(dtype)
    whole = kernel(base, target=target)
    for start in range(17):
        for end in (4096 + start, 4999, start + 1):
            assert torch.equal(kernel(base[start:end], target=target), whole[start:end])
            out = torch.empty(6000, device="cuda", dtype=dtype)[3 : 3 + end - start]
            assert torch.equal(kernel(base[start:end], out=out, target=target), whole[start:end])


@pytest.mark.usefixtures("much_memory")
@pytest.mark.parametrize("target", TARGETS)
def test_more_than_2_31_elements(target: str) -> None:
    kernel = kgen.loads("twice(x: i8[N]) -> y: i8[N]\ny = x * 2 + 1")
    n = 2**31 + 4097
    x = torch.ones(n, dtype=torch.int8, device="cuda")
    x[-1] = 7
    y = kernel(x, target=target)
    assert int(y[-1]) == 15 and bool((y[:-1] == 3).all())


@pytest.mark.usefixtures("much_memory")
@pytest.mark.parametrize("target", TARGETS)
def test_addresses_above_2_31(target: str) -> None:
    kernel = kgen.loads("twice(x: i8[M, N]) -> y: i8[M, N]\ny = x * 2 + 1")
    base = torch.zeros(2**32 + 4096, dtype=torch.int8, device="cuda")
    view = base.as_strided((3, 5), (2**31 - 8, 3))
    view.copy_(torch.arange(15, device="cuda").reshape(3, 5))
    assert torch.equal(kernel(view, target=target).cpu(), (torch.arange(15).reshape(3, 5) * 2 + 1).to(torch.int8))


@pytest.mark.parametrize("target", TARGETS)
def test_high_ranks_and_transposes(target: str) -> None:
    kernel = kgen.load("add")
    for rank in (5, 7, 9):
        shape = [2, 3] * rank
        a = torch.randn(shape[:rank], device="cuda").permute(*reversed(range(rank)))
        b = torch.randn([1 if d % 2 else n for d, n in enumerate(a.shape)], device="cuda")
        torch.testing.assert_close(kernel(a, b, target=target), a + b, rtol=0, atol=0)


@pytest.mark.parametrize("target", TARGETS)
def test_runs_on_the_current_stream_and_gives_the_same_bits(target: str) -> None:
    kernel, x = kgen.load("gelu_tanh"), torch.randn(1 << 20, device="cuda")
    first = kernel(x, target=target)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        doubled = x + x
        later = kernel(doubled, target=target)
    stream.synchronize()
    assert torch.equal(later, kernel(x + x, target=target))
    for _ in range(20):
        assert torch.equal(kernel(x, target=target), first)


def test_targets_agree_where_only_exact_operators_occur() -> None:
    for name in ("add", "relu_squared", "clip_by_value"):
        kernel = kgen.load(name)
        arguments = cases.Draw(kernel.kernel, 3, 5).arguments()
        moved = {k: a.cuda() if isinstance(a, torch.Tensor) else a for k, a in arguments.items()}
        results = [kernel(**moved, target=t).cpu() for t in TARGETS] + [kernel(**arguments)]
        for r in results[1:]:
            assert torch.equal(r.nan_to_num(7.5), results[0].nan_to_num(7.5))


@pytest.mark.parametrize("target", TARGETS)
def test_a_changed_size_or_number_compiles_nothing(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kgen.load("clip_by_value")
    kernel(torch.randn(1000, device="cuda"), -1.0, 1.0, target=target)
    counted = []
    if target == "cuda":
        from kgen.runtime import nvrtc

        real = nvrtc.compile_cubin
        monkeypatch.setattr(nvrtc, "compile_cubin", lambda *a, **k: counted.append(1) or real(*a, **k))
    else:
        from triton.runtime import JITFunction

        real_compile = JITFunction._do_compile if hasattr(JITFunction, "_do_compile") else None
        if real_compile is not None:
            monkeypatch.setattr(JITFunction, "_do_compile", lambda *a, **k: counted.append(1) or real_compile(*a, **k))
    for n in (1, 2, 16, 1000, 1001, 4096, 99_999):
        kernel(torch.randn(n, device="cuda"), 1.0 * n, 2, target=target)
    assert len(counted) <= 1  # an odd size may take the variant without vectors, once


NARROW = """
narrow(x: DT[N]) -> (a: DT[N], b: DT[N], c: DT[N], d: DT[N], e: DT[N], f: DT[N], g: i32[N])
a = x // 3
b = x % 5
c = x >> 2
d = x << 1
e = x // 2
f = x * x - x
g = i32((DT(100) != x) * i32(bool(1.0) + i32(N)))
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["i8", "u8", "i16"])
def test_narrow_integers_out_of_vectors(target: str, dtype: str) -> None:
    text = NARROW.replace("DT", dtype)
    kernel = kgen.loads(text.replace("x // ", "x // -") if dtype != "u8" else text)
    x = torch.arange(4096, dtype=torch.int32).to(getattr(torch, {"i8": "int8", "u8": "uint8", "i16": "int16"}[dtype]))
    for got, want in zip(kernel(x.cuda(), target=target), kernel(x, target="torch"), strict=True):
        assert torch.equal(got.cpu(), want)


def found() -> list:
    """The programs whose failures were of a GPU: (property, target, seed, text)."""
    texts = {p.stem: p.read_text() for p in sorted((ROOT / "tests" / "fuzzed").glob("*.k"))}
    heads = {name: dict(re.findall(r"^# (\w+): (.*)$", text, re.M)) for name, text in texts.items()}
    return [pytest.param(h["property"], h["target"], int(h["seed"]), texts[n], id=n) for n, h in heads.items() if h.get("target") in TARGETS]


@pytest.mark.parametrize(("name", "target", "seed", "text"), found())
def test_every_failure_that_was_found_on_a_gpu_is_gone(name: str, target: str, seed: int, text: str) -> None:
    subject = fuzz.Subject(text, seed)
    subject.sampled = True  # as the campaign that found it
    subject.prepare(target)
    what, said = fuzz.outcome(subject, name, target)
    assert what == "held", said
