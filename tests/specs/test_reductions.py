"""The bundled specs that reduce: their formulas are torch's functions in f64, and what is computed stays within the derived bound."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.ops import SCANS
from kgen.testing.bounds import Analysis, ulp
from kgen.types import DTYPES as NAMES
from tests.conftest import ROOT
from tests.specs.cases import (
    DTYPES,
    LARGE,
    ROWS,
    SIZES,
    Arguments,
    Case,
    built_as_its_like,
    cases,
    check_case,
    load,
    random,
    special,
    turns,
)

CASES = cases()
IDS = [f"{c.spec}{k if k and CASES[k - 1].spec == c.spec else ''}" for k, c in enumerate(CASES)]
#: Where generated code runs as well: a target is added here, and every case is held to the same bound on it.
TARGETS = ("torch", "cpp")


def every(cases: list[Case]) -> pytest.MarkDecorator:
    """Each case in each dtype on each target.  What is compiled costs two seconds a dtype: in the default run one of f32 and bf16;
    what is evaluated runs in that and in one more, by turns."""
    found = []
    for case, name in zip(cases, (IDS[CASES.index(c)] for c in cases), strict=True):
        for target in TARGETS:
            for dtype in DTYPES:
                turn = turns(case.spec)[: 1 if target == "cpp" else 2]
                rare = dtype not in [getattr(torch, NAMES[d].torch) for d in turn]
                found.append(pytest.param(case, dtype, target, id=f"{name}-{dtype}-{target}", marks=[pytest.mark.slow] if rare else []))
    return pytest.mark.parametrize(("case", "dtype", "target"), found)


each_case = pytest.mark.parametrize("case", CASES, ids=IDS)


def test_every_spec_that_reduces_or_scans_has_a_case() -> None:
    kernels = [kgen.load(p).kernel for p in (ROOT / "specs").glob("*.k")]
    reduce = {k.name for k in kernels if k.reduces or any(v.op in SCANS for v in k.values)}
    assert reduce == {c.spec for c in CASES}


def assert_torchs(case: Case, given: Arguments) -> None:
    """The exact reading is torch's own function, within the bound derived for f64 (which leaves out the rounding to a result's dtype)."""
    arguments = case.filled(given)
    want = case.reference(**arguments)
    for r, y, other in zip(load(case.spec).kernel.results, Analysis(load(case.spec).kernel, arguments, "cpp").results(), want, strict=True):
        x = y.exact.double()
        room = y.bound.nan_to_num(0) - (0.5 * ulp(x, y.dtype) if y.dtype == "f32" else 0)
        near = (x - other.double()).abs() <= room.clamp(min=0) + 1e-15 * x.abs()
        bad = ~((x == other) | (x.isnan() & other.isnan()) | near)
        assert y.exact.shape == other.shape
        at = bad.nonzero()[:5].tolist()
        assert not bad.any(), (
            f"{case.spec}.{r.name}: {int(bad.sum())} of {bad.numel()} differ at {at}: {x[bad][:5]}, torch has {other[bad][:5]}"
        )


@each_case
def test_the_formula_is_torchs_in_f64(case: Case) -> None:
    for n in SIZES:
        assert_torchs(case, case.arguments(n, random(torch.float64, n)))


@pytest.mark.parametrize("case", [c for c in CASES if c.special], ids=[i for i, c in zip(IDS, CASES) if c.special])
def test_rows_of_infinities_nan_and_equal_values_are_torchs(case: Case) -> None:
    for n in (1, 2, 7, 33):
        for seed in range(0, ROWS, 4):
            assert_torchs(case, case.arguments(n, special(torch.float64, seed)))


@every(CASES)
def test_results_stay_within_the_derived_bound(case: Case, dtype: torch.dtype, target: str, request: pytest.FixtureRequest) -> None:
    built_as_its_like(case.spec, request)
    reports = [check_case(case, case.arguments(n, random(dtype, n)), target) for n in SIZES]
    assert sum(r.unbounded for r in reports) <= 0.01 * sum(r.elements for r in reports), "the bound is vacuous on ordinary data"


@every([c for c in CASES if c.special])
def test_special_rows_stay_within_the_derived_bound(case: Case, dtype: torch.dtype, target: str, request: pytest.FixtureRequest) -> None:
    built_as_its_like(case.spec, request)
    for n in (1, 2, 7, 33):
        check_case(case, case.arguments(n, special(dtype, n)), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", LARGE)
@each_case
def test_long_rows_stay_within_the_derived_bound(case: Case, n: int, target: str) -> None:
    for dtype in DTYPES:
        check_case(case, case.arguments(n, random(dtype, n)), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("spec", ["softmax", "layernorm", "argmax", "frobenius", "mse"])
def test_rows_of_a_million_stay_within_the_derived_bound(spec: str, target: str) -> None:
    case = next(c for c in CASES if c.spec == spec)
    check_case(case, case.arguments(2**20 + 1, random(torch.float32)), target)


@pytest.mark.parametrize("target", TARGETS)
def test_no_elements_give_what_eager_gives(target: str, built_quickly: None) -> None:
    x, text = torch.randn(3, 0), "f(x: f32[M, N]) -> (s: f32[M], p: f32[M], m: f32[M], a: bool[M], e: bool[M])\n"
    kernel = kgen.loads(text + "s = sum[N](x)\np = prod[N](x)\nm = mean[N](x)\na = any[N](x)\ne = all[N](x)")
    s, p, m, a, e = kernel(x, target=target)
    assert s.tolist() == [0.0] * 3 and p.tolist() == [1.0] * 3 and m.isnan().all() and not a.any() and e.all()
    assert kgen.load("softmax")(x, target=target).shape == (3, 0)
    assert kgen.load("softmax")(torch.randn(0, 4), target=target).shape == (0, 4)
    assert kgen.load("variance")(x, target=target).isnan().all()
    assert kgen.load("mse")(x, x, target=target).isnan() and kgen.load("frobenius")(x, target=target) == 0
    assert kgen.load("argmax")(torch.randn(0, 5), target=target).shape == (0,)
    for name in ("argmax", "logsumexp"):
        with pytest.raises(kgen.KgenError, match=r"max\[N\] of no elements: dim N has size 0"):
            kgen.load(name)(x, target=target)


def test_dots_may_be_reduced_whatever_their_rank() -> None:
    kernel = kgen.loads(
        "f(x: T[..., N], y: T[...]) -> (s: T[N], v: f64[], z: T[...])\ns = sum[...](x)\nv = f64(var[..., N](x))\nz = y - max[...](y)"
    )
    for shape in ((), (3,), (2, 1, 3), (0,)):
        x, y = torch.randn(*shape, 4, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
        if 0 in shape:
            with pytest.raises(kgen.KgenError, match=r"max\[\.\.\.\] of no elements: dim \.\.\. has size 0"):
                kernel(x, y, target="torch")
            continue
        s, v, z = kernel(x, y, target="torch")
        torch.testing.assert_close(s, x.reshape(-1, 4).sum(0), rtol=1e-15, atol=1e-15)
        torch.testing.assert_close(v, x.var(), rtol=1e-14, atol=1e-15)
        torch.testing.assert_close(z, y - y.max(), rtol=0, atol=0)


def test_a_reduction_over_leading_dims_counts_those_that_another_parameter_widens() -> None:
    kernel = kgen.loads("f(x: T[..., N], y: T[...]) -> (s: T[N], y2: T[...])\ns = sum[...](x)\ny2 = 2 * y")
    s, _ = kernel(torch.tensor([1.0, 2.0]), torch.zeros(5), target="torch")
    assert s.tolist() == [5.0, 10.0]  # x is the same along the 5


def test_argmax_over_several_dims_counts_them_in_the_order_named() -> None:
    x = torch.randn(3, 4, 5)
    i, j = kgen.loads("f(x: T[A, B, C]) -> (i: i64[B], j: i64[B])\ni = argmax[A, C](x)\nj = argmax[C, A](x)")(x, target="torch")
    assert i.tolist() == x.permute(1, 0, 2).reshape(4, -1).argmax(-1).tolist()
    assert j.tolist() == x.permute(1, 2, 0).reshape(4, -1).argmax(-1).tolist()


def test_a_target_class_outside_gives_nan_and_an_ignored_one_0() -> None:
    t = torch.tensor([0, 5, -1, 2**40, 7, -100])
    loss = kgen.load("cross_entropy")(torch.randn(6, 5), t, ignore=7, target="torch")
    assert loss.isnan().tolist() == [False, True, True, True, False, True] and loss[4] == 0


def test_kl_div_leaves_out_what_has_probability_0_where_torch_gives_nan() -> None:
    p = torch.tensor([[0.5, 0.5, 0.0]])
    loss = kgen.load("kl_div")(p.log(), p, target="torch")
    assert loss.tolist() == [0.0] and torch.nn.functional.kl_div(p.log(), p, reduction="sum").isnan()
