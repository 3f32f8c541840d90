"""Calls that are launched on views of their tensors, parts or axes split into dims, go the fast way too, and give what the slow one gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kgen
from kgen.errors import KgenError
from kgen.runtime import fast
from tests.runtime.test_fast import counts

pytestmark = pytest.mark.skipif(not fast.wait(), reason="there is no extension here: no compiler, no Python.h, or another ABI")

HALVES = "h(x: T[..., 2*D], w: T[D], k: float = 2) -> y: T[..., 2*D]\n\ny[2 = 0] = x[2 = 0] * w - k * x[2 = 1]\ny[2 = 1] = x[2 = 1]\n"
PARTS = "p(x: T[2, N], k: int) -> (y: T[N], z: T[N])\n\ny = x[2 = 1] * k\nz = sum[N](x[2 = 0]) + y\n"
GROUPS = "g(x: T[M, G*4], e: float) -> (q: T[M, G*4], s: T[M, G])\n\ns = max[4](abs(x)) + e\nq = x / s\n"
STATE = "s(x: T[..., D*2], g: T[D]) -> x': T[..., D*2]\n\nx'[2 = 0] = x[2 = 0] - g\nx'[2 = 1] = x[2 = 1] + x[2 = 0]\n"
GIVEN: dict[str, tuple[str, tuple[Any, ...]]] = {
    "halves": (HALVES, ((3, 8), (4,), 1.5)), "parts": (PARTS, ((2, 7), 3)), "groups": (GROUPS, ((3, 8), 0.5)), "state": (STATE, ((3, 8), (4,))),
}  # fmt: skip


def made(shapes: tuple[Any, ...], off: int = 0) -> list[Any]:
    """Arguments, the first tensor so many elements behind an aligned place."""
    tensors = [torch.randn(*s) if isinstance(s, tuple) else s for s in shapes]
    x = torch.randn(tensors[0].numel() + off)[off:].view(tensors[0].shape)
    return [x, *tensors[1:]]


def in_tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else () if x is None else (x,)


@pytest.mark.parametrize("name", ["halves", "state", *(pytest.param(name, marks=pytest.mark.slow) for name in ("parts", "groups"))])
@pytest.mark.usefixtures("built_quickly")
def test_a_call_like_another_does_not_run_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, shapes = GIVEN[name]
    kernel, slow = kgen.loads(text), kgen.loads(text)
    for _ in range(fast.FEW + 1):
        kernel(*made(shapes))
    assert counts(kernel) == (1, 1)
    for off in (0, 1, 4):
        given = made(shapes, off)
        other = [x.clone() if isinstance(x, torch.Tensor) else x for x in given]
        with monkeypatch.context() as m:
            m.setitem((kernel._plain or kernel).__dict__, "_calls", None)
            got = kernel(*given)
        want = slow(*other, target="torch")
        for a, b in zip((*in_tuple(got), given[0]), (*in_tuple(want), other[0]), strict=True):
            torch.testing.assert_close(a, b)
            assert a.shape == b.shape and a.stride() == b.stride()


def test_results_into_tensors_of_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kgen.loads(HALVES)
    x, w, k = made(GIVEN["halves"][1])
    want = kernel(x, w, k)
    out = torch.empty(3, 9)[:, :8]
    assert kernel(x, w, k, out=out) is out
    version = out._version
    out.zero_()
    with monkeypatch.context() as m:
        m.setitem((kernel._plain or kernel).__dict__, "_calls", None)
        assert kernel(x, w, k, out=out) is out and torch.equal(out, want) and out._version > version + 1
    whole = torch.randn(2, 3, 8)
    x, out = whole[0], whole[0]
    with pytest.raises(KgenError, match="overlap|memory"):
        kernel(x, w, k, out=out)


def test_gradients_and_calls_that_are_none_for_it() -> None:
    kernel = kgen.loads(HALVES)
    x, w, k = made(GIVEN["halves"][1])
    for _ in range(3):
        want = kernel(x, w, k)
    for _ in range(2):
        leaf = x.clone().requires_grad_()
        y = kernel(leaf, w, k)
        assert y.requires_grad and torch.equal(y, want)
        with torch.no_grad():
            assert torch.equal(kernel(leaf, w, k), want)
    assert torch.equal(torch.func.vmap(kernel, in_dims=(0, None, None))(x, w, k), want)
    empty = kernel(torch.empty(0, 8), w, k)
    assert empty.shape == (0, 8) and torch.equal(kernel(x, w, k), want)
    with pytest.raises(KgenError):
        kernel(x[:, :7], w, k)


def test_a_pointer_may_lie_behind_its_tensor() -> None:
    from kgen.runtime.views import moved

    launch = fast.Launch(False, 0, (1, 1, 1), (1, 1, 1), 0, 1, bytes(24), (), 0, ((8, 1, 0), (0, 0, 0)))
    made = moved(launch, [(2, 0), (0, 48)])
    assert made.pointers == ((8, 0, 0), (0, 2, 0)) and made.arguments == bytes(8) + (48).to_bytes(8, "little") + bytes(8)

