"""Passes over rows in C++: every shape of program within its bound, and a row's bits whatever stands beside it."""

from __future__ import annotations

import ctypes

import pytest
import torch

import kgen
from kgen.ops import tree_depth
from kgen.testing import checks
from kgen.testing.bounds import Analysis
from kgen.types import DTYPES
from tests.programs import PROGRAMS
from tests.specs.cases import built, check_call

#: A row side by side with others, a row in lanes, in one segment or several.
LENGTHS = (1, 3, 33, 63, 64, 65, 100, 511, 513, 4096, 5000, 65_537)
KERNELS = ("softmax", "layernorm", "logsumexp", "variance", "argmax")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if k % 2 else ()) for k, n in enumerate(PROGRAMS)])
def test_programs_stay_within_the_derived_bound(name: str, built_quickly: None) -> None:
    """Each second one by default (the emulator, NVRTC and Triton have the others), in one choice of dtypes: each takes the compiler a
    second; at -O3 three, as those of every dtype are built."""
    text = PROGRAMS[name].replace("T32", "f32").replace("T[", "f32[").replace("U[", "bf16[").replace("T(", "f32(")
    report = checks.check(kgen.loads(text).kernel, "cpp", examples=12)
    assert not report.failures, report.failures[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_every_dtype_stay_within_the_derived_bound(name: str) -> None:
    report = checks.check(kgen.loads(PROGRAMS[name]).kernel, "cpp", examples=96, seed=1)
    assert not report.failures, report.failures[0]


def call(kernel: kgen.Kernel, x: torch.Tensor) -> torch.Tensor:
    n = x.shape[-1]
    return kernel(x, torch.linspace(-1, 2, n).to(x.dtype), torch.ones(n, dtype=x.dtype)) if kernel.name == "layernorm" else kernel(x)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return bool(torch.equal(a, b))


def normal(spec: str, *shape: int) -> torch.Tensor:
    """In the dtype that tests/specs builds too."""
    return torch.randn(shape).to(getattr(torch, DTYPES[built(spec)].torch))


@pytest.mark.parametrize("spec", KERNELS)
def test_a_row_alone_has_the_bits_that_it_has_among_others(spec: str) -> None:
    kernel = kgen.load(spec)
    for n in LENGTHS:
        x = normal(spec, 19 if n < 60_000 else 3, n)
        every = call(kernel, x)
        for row in (0, x.shape[0] // 2, x.shape[0] - 1):
            assert same_bits(call(kernel, x[row : row + 1]), every[row : row + 1]), (n, row)
            assert same_bits(call(kernel, x[row]), every[row]), (n, row)


@pytest.mark.parametrize("spec", ("softmax", "variance"))
def test_a_column_alone_has_the_bits_that_it_has_among_others(spec: str) -> None:
    kernel = kgen.load(spec)
    for n in (3, 40, 100, 1000):
        x = normal(spec, n, 37)
        every = kernel(x.mT)
        for k in (0, 20, 36):
            assert same_bits(kernel(x[:, k : k + 1].mT), every[k : k + 1]), (n, k)


def test_the_bits_are_the_same_in_every_run() -> None:
    for spec in KERNELS:
        kernel, x = kgen.load(spec), normal(spec, 7, 70_001)
        first = call(kernel, x)
        assert all(same_bits(call(kernel, x), first) for _ in range(20)), spec
    columns = kgen.load("sum_of_squares_cols")
    wide = normal("sum_of_squares_cols", 5000, 65)
    first = columns(wide)
    assert all(same_bits(columns(wide), first) for _ in range(20))


def test_the_bits_do_not_depend_on_the_number_of_threads() -> None:
    given = [(spec, normal(spec, *shape)) for shape in ((3, 200_001), (300, 1000), (1, 1_000_000)) for spec in ("softmax", "frobenius")]
    given.append(("sum_of_squares_cols", normal("sum_of_squares_cols", 3000, 70)))
    kernels = {spec: kgen.load(spec) for spec, _ in given}
    library = ctypes.CDLL(None)  # where torch's OpenMP is, which kernels run on too
    found, usual = {}, torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            assert library.omp_get_max_threads() == threads
            found[threads] = [kernels[spec](x) for spec, x in given]
    finally:
        torch.set_num_threads(usual)
    for one, *others in zip(*found.values(), strict=True):
        assert all(same_bits(one, other) for other in others)


def test_results_may_lie_where_an_operand_does_only_where_one_pass_reads_it() -> None:
    x = normal("softmax", 5, 100)
    want = kgen.load("softmax")(x.clone())
    assert kgen.load("softmax")(x, out=x) is x and torch.equal(x, want)
    two = kgen.loads(PROGRAMS["two directions"])
    with pytest.raises(kgen.KgenError, match="out overlaps x in memory"):
        two(x, out=x)
    turned = kgen.loads("turned(x: T[M, N]) -> y: T[N, M]\n\ny = x + 1")
    square = torch.randn(4, 4)
    with pytest.raises(kgen.KgenError, match="out overlaps x in memory"):
        turned(square, out=square)


@pytest.mark.usefixtures("built_quickly")
def test_more_elements_than_32_bits_count() -> None:
    """Through a stride of 0: memory for one element, 2^32 of them."""
    x = torch.ones(1, 1, dtype=torch.int8).expand(1 << 16, 1 << 16)
    kernel = kgen.loads("count(x: i8[M, N]) -> (a: i64[], b: i64[N])\n\na = sum[M, N](x)\nb = sum[M](x)")
    a, b = kernel(x[:, : 1 << 8])
    assert a.item() == 1 << 24 and (b == 1 << 16).all()


def test_long_sums_keep_their_digits() -> None:
    """Serial f32 sums are 7e-5 off at 2^24 terms; within a tree no term passes more than 64 + 24 additions."""
    x = torch.rand(1 << 24, generator=torch.Generator().manual_seed(0))
    total = kgen.loads("total(x: f32[N]) -> y: f32[]\n\ny = sum[N](x)")(x)
    assert abs(total.item() / x.double().sum().item() - 1) <= tree_depth(1 << 24) * 2.0**-24


def test_a_variance_does_not_cancel() -> None:
    """E[x^2] - E[x]^2 in f32 has a relative error of 25 at an offset of 1e4."""
    x = torch.randn(3, 4097, generator=torch.Generator().manual_seed(0)) + 1e4
    kernel = kgen.load("variance")
    assert check_call(kernel, {"x": x}, "cpp").unbounded == 0
    (derived,) = Analysis(kernel.kernel, {"x": x}, "cpp").results()
    assert (derived.bound < derived.exact).all()  # so the bound itself rules out what cancels


@pytest.mark.parametrize("length", [10, 1000, 70_001])
@pytest.mark.usefixtures("built_quickly")
def test_a_result_beside_values_of_rows_may_be_the_operand_itself(length) -> None:
    """dx over x, where the loss is a row's; not a row's value over one that elements read."""
    loss_and_dx = kgen.load("cross_entropy_dx")
    x, t = torch.randn(6, length), torch.randint(0, length, (6,))
    t[2] = -100
    wanted = loss_and_dx(x, t, scale=0.5)
    for _ in range(2):  # as it is launched the first time, and as it is kept
        given, loss = x.clone(), torch.empty(6)
        loss_and_dx(given, t, scale=0.5, out=(loss, given))
        assert torch.equal(loss, wanted[0]) and torch.equal(given, wanted[1])
    shift = kgen.loads("f(x: T[M, N], r: T[M]) -> (y: T[M, N], s: T[M])\n\ns = sum[N](x)\ny = x * r\n")
    r = torch.randn(6)
    with pytest.raises(kgen.KgenError, match="out overlaps r in memory"):
        shift(x, r, out=(torch.empty_like(x), r))
    apart = kgen.loads("g(x: T[..., N]) -> (y: T[..., N], c: f32[])\n\ny = x + 1\nc = sin(1)\n")  # of two passes, on some targets
    with pytest.raises(kgen.KgenError, match="out overlaps x in memory"):
        apart(x, out=(x, torch.empty(())))
    scan = kgen.loads("h(x: f32[..., N]) -> (y: f32[..., N], z: f32[..., N])\n\ny = cumsum[N](f32(index[N]))\nz = x + 1\n")
    with pytest.raises(kgen.KgenError, match="out overlaps x in memory"):  # the scan's pass is before that which reads x
        scan(x, out=(x, torch.empty_like(x)))
