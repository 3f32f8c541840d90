"""Reductions over whole lists of tensors: as over one tensor that has all their elements, in a fixed order."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import kgen
from kgen import check, specialise, syntax, whole
from kgen.runtime.kernel import Kernel
from kgen.runtime.whole import LARGE

SPREAD = """
spread(x: T[...], by: f32[], shift: float = 0.0) -> (y: T[...], m: T32[], top: T32[])

m   = mean[...](x)
c   = (x - m) * by
y   = c / sqrt(mean[...](c^2)) + shift
top = max[...](x)
"""
SHAPES = [(3, 4), (200, 300), (), (0,), (LARGE,), (LARGE - 1,), (50_001,), (7,)]


@pytest.fixture(autouse=True)
def evaluated(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Kernels run operator by operator, but where a test is slow: how a list is put together is looked at here."""
    if not request.node.get_closest_marker("slow"):
        monkeypatch.setattr(Kernel, "_preferred", lambda self, device, elements=0: "torch")


def drawn(dtypes: tuple[torch.dtype, ...] = (torch.float32,), seed: int = 0) -> list[torch.Tensor]:
    """Tensors of many shapes, small and read in parts, one transposed and one with gaps."""
    torch.manual_seed(seed)
    found = [torch.randn(shape).to(dtypes[k % len(dtypes)]) for k, shape in enumerate(SHAPES)]
    return [*found, torch.randn(300, 200, dtype=found[0].dtype).t(), torch.randn(40, 600).to(dtypes[-1])[:, ::2]]


def joined(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.double().reshape(-1) for t in tensors])


def norm_of(tensors: list[torch.Tensor]) -> float:
    return float(joined(tensors).square().sum().sqrt())


def holds_the_norm(kernel: kgen.Kernel, tensors: list[torch.Tensor]) -> None:
    """Within the rounding of a tree of squares in f32: its depth is below 64 + log2(n) additions, and all terms are positive."""
    got = kernel.foreach(tensors, whole=True)
    want, n = norm_of(tensors), sum(t.numel() for t in tensors)
    u = 2.0**-53 if got.dtype == torch.float64 else 2.0**-24
    assert got.shape == () and abs(float(got) - want) <= (64 + 8 + math.log2(n)) * u * want
    assert torch.equal(got, kernel.foreach(tensors, whole=True))
    assert torch.equal(got, kernel.foreach([t.clone() if t.is_contiguous() else t for t in tensors], whole=True))


@pytest.mark.parametrize("dtypes", [(torch.float32,), (torch.bfloat16, torch.float32, torch.float16), (torch.float64,)])
def test_a_norm_of_all(dtypes: tuple[torch.dtype, ...]) -> None:
    holds_the_norm(kgen.load("frobenius"), drawn(dtypes))


@pytest.mark.slow
@pytest.mark.parametrize("dtypes", [(torch.float32,), (torch.bfloat16, torch.float32), (torch.float64,)])
def test_a_norm_of_all_on_the_cpu(dtypes: tuple[torch.dtype, ...]) -> None:
    holds_the_norm(kgen.load("frobenius"), drawn(dtypes))
    test_levels_follow_one_another()


def test_levels_follow_one_another() -> None:
    xs, by = drawn(), torch.tensor(2.0)
    y, m, top = kgen.loads(SPREAD).foreach(xs, by, 0.5, whole=True)
    all_of = joined(xs)
    c = all_of - all_of.mean()
    wanted = c / c.square().mean().sqrt() + 0.5
    assert [t.shape for t in y] == [x.shape for x in xs]
    assert torch.allclose(joined(y), wanted, atol=1e-5) and abs(float(m - all_of.mean())) < 1e-6 and top == all_of.max()


def test_several_lists_and_results_in_place() -> None:
    text = "f(a: T[...], b: f32[...], k: float) -> (a': T[...], d: T32[])\n\nd = sum[...](a * b) * k\na' = a + d\n"
    a, b = drawn((torch.bfloat16, torch.float32), 1), drawn(seed=2)
    before = [t.clone() for t in a]
    d = kgen.loads(text).foreach(a, b, k=0.5, whole=True)
    want = 0.5 * float((joined(before) * joined(b)).sum())
    assert abs(float(d) - want) < 1e-2 and all(torch.equal(x, (y.float() + d).to(x.dtype)) for x, y in zip(a, before, strict=True))


def test_large_tensors_are_read_in_parts() -> None:
    checked = specialise.bound(check.check(syntax.parse(SPREAD)), {"T": "f32"})
    made = whole.whole(checked)
    assert [len(v.several.params) for v in made.levels] == [whole.WAYS, whole.WAYS + 2]
    assert made.alone is not None and [p.name for p in made.alone.params] == ["mean_all", "max_all"]
    taken = whole.whole(check.check(syntax.parse("f(x: f32[...], x_1: f32[...]) -> y: f32[]\n\ny = sum[...](x * x_1)\n")))
    assert len({p.name for p in taken.levels[0].several.params}) == 2 * whole.WAYS


def test_the_number_of_launches_is_that_of_one_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    frobenius, calls = kgen.load("frobenius"), list[str]()
    frobenius.foreach(drawn(), whole=True)
    plain = Kernel.foreach
    monkeypatch.setattr(Kernel, "foreach", lambda self, *args, **options: calls.append(self.name) or plain(self, *args, **options))
    frobenius.foreach(drawn() * 5, whole=True)
    assert calls == ["frobenius", "frobenius_each_of_8", "frobenius_each"]


@pytest.mark.parametrize(
    ("text", "args", "options", "message"),
    [
        ("f(x: f32[..., N]) -> y: f32[...]\n\ny = sum[N](x)\n", ([torch.ones(3)],), {}, "x has named dims"),
        ("f(x: f32[...]) -> y: f32[...]\n\ny = x + 1\n", ([torch.ones(3)],), {}, "it reduces nothing"),
        ("f(x: f32[...]) -> y: i64[]\n\ny = argmax[...](x)\n", ([torch.ones(3)],), {}, "argmax is not taken over a list"),
        ("f(x: f32[...]) -> y: f32[]\n\ny = sum[...](x)\n", ([],), {}, "have a tensor or more"),
        ("f(x: f32[...]) -> y: f32[]\n\ny = sum[...](x)\n", ([torch.ones(3)],), {"out": torch.ones(())}, "takes no out"),
        ("f(x: f32[...]) -> y: f32[]\n\ny = sum[...](x)\n", ([torch.ones(3).requires_grad_()],), {}, "requires grad"),
        ("f(x: T[...]) -> y: T32[]\n\ny = sum[...](x)\n", ([torch.ones(3), torch.ones(3).double()],), {}, "in several dtypes"),
        ("f(x: T[...], z: T[...]) -> y: T32[]\n\ny = sum[...](x*z)\n", ([torch.ones(3)], [torch.ones(1)]), {}, "another device or shape"),
        ("f(x: f32[...], k: float) -> y: f32[]\n\ny = sum[...](x*k)\n", ([torch.ones(3)], [1.0]), {}, "are shared"),
    ],
)  # fmt: skip
def test_what_no_list_can_be_put_together_for_is_refused(text: str, args: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(kgen.KgenError, match=message):
        kgen.loads(text).foreach(*args, whole=True, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("most", [0.5, 1e9, math.inf])
def test_gradients_are_clipped_as_torch_s(dtype: torch.dtype, most: float) -> None:
    ours, theirs = ([torch.nn.Parameter(torch.zeros(x.shape, dtype=dtype)) for x in drawn()] for _ in range(2))
    for own in (ours, theirs):
        for p, g in zip(own, drawn(seed=3), strict=True):
            p.grad = g.to(dtype).contiguous()
    ours[0].grad = theirs[0].grad = None
    total = kgen.optim.clip_grad_norm_(ours, most)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, most)
    near = 2e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(total.double(), wanted.double(), rtol=near, atol=0)
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=near, atol=1e-6)


def test_clipping_at_the_edges() -> None:
    p = torch.nn.Parameter(torch.zeros(3))
    assert kgen.optim.clip_grad_norm_([p], 1.0) == 0 and p.grad is None
    p.grad = torch.tensor([1.0, math.nan, 2.0])
    assert kgen.optim.clip_grad_norm_(p, 1.0).isnan() and p.grad.isnan().all()
    p.grad = torch.zeros(3)
    assert kgen.optim.clip_grad_norm_(iter([p]), 1.0) == 0 and torch.equal(p.grad, torch.zeros(3))
    for options in ({"norm_type": 1.0}, {"error_if_nonfinite": True}):
        with pytest.raises(kgen.KgenError, match="2-norm alone"):
            kgen.optim.clip_grad_norm_([p], 1.0, **options)
