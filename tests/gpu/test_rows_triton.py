"""On a CUDA device: Triton's passes over rows, against the exact reading and against themselves in other forms.

Bits: a row alone and among others, 20 runs, a loop over long rows and their segments by many programs.
"""

from __future__ import annotations

import math

import pytest
import torch

import kgen
from kgen.testing import checks
from tests.triton.test_triton_rows import MORE, spec

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
LENGTHS = (1, 2, 3, 31, 32, 33, 1023, 1024, 1025, 4096, 32769, 65536, 65537, 2**20 + 1)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.nan_to_num(7.5), b.nan_to_num(7.5))


def extra(name: str, count: int, length: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    if name == "layernorm":
        return torch.randn(length, device="cuda").to(dtype), torch.randn(length, device="cuda").to(dtype)
    return (torch.randint(0, length, (count,), device="cuda"),) if name == "cross_entropy" else ()


@pytest.mark.parametrize("name", [n for n in MORE if n != "names"])
def test_random_cases_stay_within_the_derived_bound(name: str) -> None:
    report = checks.check(kgen.loads(MORE[name]).kernel, "triton", examples=8)
    assert not report.failures, report.failures[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("count", [47, 63, 64, 28001])
def test_an_operand_that_broadcasts_along_what_is_reduced(dtype: torch.dtype, count: int) -> None:
    """Lanes run across rows whose elements are one: of an odd number of rows each eighth was read elsewhere."""
    kernel = kgen.loads("across(x: T[..., N], y: i8[N]) -> (k: T[N], t: f64[..., N])\nk = max[...](x)\nt = f64(y) + min(x, k)")
    one = torch.randn(count, device="cuda").to(dtype)
    k, t = kernel(one.expand(15, count), torch.ones(count, device="cuda", dtype=torch.int8), target="triton")
    assert torch.equal(k, one) and torch.equal(t, (1 + one.double()).expand(15, count))


def by_turns() -> list:
    """Kernels by dtypes and parts of LENGTHS; each part of two kernels, in one of the dtypes each, the rest slow."""
    found = []
    for k, name in enumerate(("softmax", "layernorm", "cross_entropy", "argmax")):
        for part in range(4):
            for d, dtype in enumerate((torch.bfloat16, torch.float32)):
                found.append(pytest.param(name, dtype, part, id=f"{name}-{dtype}-{part}", marks=() if 2 * d == (k + part) % 4 else pytest.mark.slow))
    return found


@pytest.mark.parametrize(("name", "dtype", "part"), by_turns())
def test_a_row_has_the_same_bits_alone_in_every_run_and_in_every_form(name: str, dtype: torch.dtype, part: int, monkeypatch) -> None:
    kernel = kgen.loads(spec(name))
    for length in LENGTHS[part::4]:
        count = 300 if length <= 65536 else 5
        x = torch.randn(count, length, device="cuda").to(dtype)
        more = extra(name, count, length, dtype)
        y = kernel(x, *more, target="triton")
        for r in (0, count - 1):
            own = (more[0][r : r + 1],) if name == "cross_entropy" else more
            assert same(kernel(x[r : r + 1], *own, target="triton"), y[r : r + 1]), (length, r)
        assert all(same(kernel(x, *more, target="triton"), y) for _ in range(20 if length in (1023, 65537) else 1))
        constants = kernel._launchers["triton"].function.__globals__
        for few in (0, 1 << 40):
            monkeypatch.setitem(constants, "FEW", few)
            assert same(kernel._bound((x, *more), {}, None, "triton"), y), (length, few)  # a call like the others would be replayed
        monkeypatch.undo()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_special_rows(dtype: torch.dtype) -> None:
    inf = float("inf")
    for length in (3, 1000, 65536):
        x = torch.randn(6, length, device="cuda").to(dtype)
        x[0], x[1], x[2, length // 2], x[3, :-1], x[4, 0] = -inf, inf, float("nan"), -inf, inf
        for name, reference in (("softmax", torch.softmax), ("logsumexp", torch.logsumexp)):
            y = kgen.loads(spec(name))(x, target="triton")
            torch.testing.assert_close(y.double(), reference(x.double(), -1), rtol=1e-2, atol=1e-3, equal_nan=True)
        assert torch.equal(kgen.loads(spec("argmax"))(x, target="triton"), x.argmax(-1))


@pytest.mark.usefixtures("much_memory")
def test_more_than_2_31_elements() -> None:
    x = torch.ones(2**31 + 4099, dtype=torch.bfloat16, device="cuda")
    assert math.isclose(kgen.loads(spec("frobenius"))(x, target="triton").item(), math.sqrt(x.numel()), rel_tol=1e-6)
    columns = kgen.loads(spec("sum_of_squares_cols"))(x[: 2**31].view(2**27, 16), target="triton")
    assert bool((columns == 2**27).all())
