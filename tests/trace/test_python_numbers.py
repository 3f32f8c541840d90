"""Numbers of a call in decorated functions are Python's; integers come to the dtype that a reduction asks for, as in torch."""

# ruff: noqa: F821

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kgen


def by_size(x: "T[N]"):
    return x * x.shape[0] ** -1


def by_number(x: "T[N]", k: int):
    return x * k**-2 + (True and k > 3) * x + (k > 1 and True) * x


def sums(v: "i8[B, N]"):
    return v.sum(-1, dtype=torch.int8), v.sum(0, keepdim=True, dtype=torch.int32), v.prod(-1, dtype=torch.int16), v.sum(dtype=torch.int64)


def scans(m: "bool[B, N]", v: "i8[B, N]"):
    return m.cumsum(-1, dtype=torch.int32), v.cumprod(0, dtype=torch.uint8), torch.cumsum(v, 1, dtype=torch.int16)


def to_integers(x: "f32[B, N]"):
    return x.sum(-1, dtype=torch.int16), x.cumsum(-1, dtype=torch.int8)


def behind_a_part(x: "T[B, N]"):
    return x[:, 2:].mean(1), (x[:, 2:] - x[:, :-2]).pow(2).mean()


CASES: list[tuple[Callable[..., Any], list[Any]]] = [
    (by_size, [torch.tensor([1.0, 2.0, 3.0])]),
    *((by_number, [torch.tensor([1.0, 2.0, 3.0]), k]) for k in (1, 2, 5, -3)),
    (sums, [torch.full((3, 4), 100, dtype=torch.int8)]),
    (scans, [torch.ones(2, 3, dtype=torch.bool), torch.full((2, 3), 99, dtype=torch.int8)]),
    (to_integers, [torch.full((2, 3), 60.0)]),
    *((behind_a_part, [torch.arange(float(2 * n)).reshape(2, n)]) for n in (1, 2, 3, 7)),
]


@pytest.mark.parametrize("target", ["torch", "cpp"])
@pytest.mark.parametrize(("function", "given"), CASES, ids=[f"{f.__name__}-{k}" for k, (f, _) in enumerate(CASES)])
def test_they_are_as_the_function_has_them(function: Callable[..., Any], given: list[Any], target: str) -> None:
    want, got = function(*given), kgen.kernel(function)(*given, target=target)
    want, got = (x if isinstance(x, tuple) else (x,) for x in (want, got))
    for w, g in zip(want, got, strict=True):
        torch.testing.assert_close(g, w, equal_nan=True)


def test_a_number_to_a_negative_power_is_refused_in_a_spec() -> None:
    for exponent in ("-1", "-3"):
        with pytest.raises(kgen.KgenError, match="negative power"):
            kgen.loads(f"f(x: T[N], n: int) -> y: T[N]\n\ny = x * n^{exponent}\n")
    with pytest.raises(kgen.KgenError, match="negative power"):
        kgen.loads("f(x: T[N]) -> y: T[N]\n\ny = x * N^-1\n")
    half = kgen.loads("f(x: T[N], n: int) -> y: T[N]\n\ny = x * n^-1.0\n")
    assert torch.equal(half(torch.ones(2), 2, target="cpp"), torch.full((2,), 0.5))
