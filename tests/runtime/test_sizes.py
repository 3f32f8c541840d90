"""Calls of kernels some of whose sizes follow from others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kgen
from kgen.backends import backend, static
from tests.headers_where import CASES, random, results

pytestmark = pytest.mark.usefixtures("built_quickly_by_default")

KERNELS = {name: kgen.loads(text) for name, (text, _, _) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_results_are_torchs(name: str) -> None:
    _, meaning, calls = CASES[name]
    for args in calls * 2:  # the second time by what the first has left
        for got, want in zip(results(KERNELS[name](*args)), results(meaning(*args)), strict=True):
            assert got.shape == want.shape and torch.allclose(got, want, atol=1e-12)
        out = tuple(torch.full_like(want, 7.0) for want in results(meaning(*args)))
        KERNELS[name](*args, out=out if len(out) > 1 else out[0])
        assert all(torch.allclose(got, want, atol=1e-12) for got, want in zip(out, results(meaning(*args)), strict=True))


@pytest.mark.parametrize("name", ["ragged", "padded", "top", "shuffle", "strided", "grouped", "halves"])
def test_gradients_are_torchs(name: str) -> None:
    _, meaning, calls = CASES[name]
    for args in calls[:2]:
        found: list[list[Any]] = []
        for function in (KERNELS[name], meaning):
            own = [x.clone().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args]
            loss = sum((y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape)).sum() for y in results(function(*own)))
            loss.backward()
            found.append([x.grad for x in own if isinstance(x, torch.Tensor) and x.is_floating_point()])
        assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(*found, strict=True))


def refused(name: str, *args: Any, out: Any = None) -> str:
    with pytest.raises(kgen.KgenError) as caught:
        KERNELS[name](*args, **({} if out is None else {"out": out}))
    return str(caught.value)


def test_sizes_that_do_not_fit_are_refused_with_the_numbers() -> None:
    assert "an axis B + 1 is 0: there is no B for which B + 1 is that" in refused("ragged", random(3, 2), torch.tensor([], dtype=torch.int64))
    assert "K = k is -1, which is no size (k is -1)" in refused("top", random(3), -1)
    assert "L = (N - width) // step + 1 divides by zero (N is 3, width is 2, step is 0)" in refused("windows", random(3), 2, 0)
    assert "L = (N - width) // step + 1 is -1, which is no size (N is 3, width is 9, step is 3)" in refused("windows", random(3), 9, 3)
    assert "x has 12 along G*W, which is 15 (G is 3 in w)" in refused("grouped", random(2, 12), random(3), 5)
    assert "x has 6 along C*P*Q: 6 is no multiple of 4" in refused("shuffle", random(1, 6, 2, 2))
    assert "out has shape [3, 1], the result v has [3, 2]" in refused("top", random(3, 4), 2, out=torch.empty(3, 1, dtype=torch.float64))
    both = kgen.loads("f(x: T[B], o: i64[E]) -> y: T[B] where E = 2*B + 1\n\ny = x * o[E = 2*index[B] + 1]\n")
    assert both(torch.ones(2), torch.arange(5)).tolist() == [1, 3]
    with pytest.raises(kgen.KgenError, match=r"E is 4, but 2 \* B \+ 1 is 5 \(B is 2\)"):
        both(torch.ones(2), torch.arange(4))


def test_the_same_number_of_another_call_makes_another_size() -> None:
    top, x = KERNELS["top"], random(4, 6)
    for k in (3, 3, 3, 3, 1, 3, 6, 0, 3):
        assert torch.equal(top(x, k), x.topk(k)[0])
        assert torch.equal(top.foreach([x, x[:2]], k)[1], x[:2].topk(k)[0])


def test_no_rows_of_none() -> None:
    assert KERNELS["ragged"](random(3, 2), torch.tensor([0])).shape == (0, 2)
    assert KERNELS["ragged"](random(0, 2), torch.tensor([0, 0])).tolist() == [[0, 0]]
    assert KERNELS["padded"](random(0, 2)).shape == (0, 2) and KERNELS["strided"](random(2, 0)).shape == (2, 0)
    nothing = kgen.loads("f(o: i64[E], x: T[B]) -> y: i64[B] where E = B + 1\n\ny = o[E = B] + i64(x)\n")
    assert nothing(torch.arange(1), torch.ones(0)).shape == (0,)


def test_lists_batches_and_what_may_be_left_out() -> None:
    ragged, pad = KERNELS["ragged"], KERNELS["padded"]
    xs, offsets = [random(10, 3), random(4, 3)], [torch.tensor([0, 3, 10]), torch.tensor([0, 1, 1, 4])]
    for got, x, o in zip(ragged.foreach(xs, offsets), xs, offsets, strict=True):
        assert torch.equal(got, ragged(x, o))
    batch = random(3, 5, 2)
    assert torch.equal(torch.vmap(pad)(batch), torch.stack([pad(x) for x in batch]))
    assert torch.equal(torch.vmap(KERNELS["shuffle"])(random(2, 1, 4, 3, 3)), torch.stack([KERNELS["shuffle"](x) for x in random(2, 1, 4, 3, 3)]))
    weighted = kgen.loads("f(x: T[B], o: i64[B + 1], w: T[B + 1] = 2) -> y: T[B]\n\ny = x * o[B + 1 = index[B] + 1] * w[B + 1 = index[B]]\n")
    assert weighted(torch.ones(2), torch.arange(3)).tolist() == [2, 4]
    assert weighted(torch.ones(2), torch.arange(3), torch.tensor([3.0, 4, 5])).tolist() == [3, 8]


def test_graphs_know_the_sizes() -> None:
    top, pad, ragged = KERNELS["top"], KERNELS["padded"], KERNELS["ragged"]
    meta = torch.empty(130, 5, device="meta")
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        fake = torch.empty(130, 5)
        assert pad(fake).shape == (256, 5) and top(fake, 3).shape == (130, 3)
        assert ragged(fake, torch.empty(8, dtype=torch.int64)).shape == (7, 5)
    assert meta.shape == (130, 5)

    @torch.compile(dynamic=True, fullgraph=True, backend="aot_eager")
    def both(x: torch.Tensor, o: torch.Tensor, k: int) -> torch.Tensor:
        return top(ragged(pad(x), o), k)

    for n, k in ((130, 2), (5, 3), (70, 1)):
        x, o = random(n, 4), torch.tensor([0, 2, n])
        assert torch.allclose(both(x, o, k), torch.stack([x[:2].sum(0), x[2:].sum(0)]).topk(k)[0])


def test_static_files_fill_in_what_follows() -> None:
    kernel = KERNELS["ragged"].kernel
    known = static.known(KERNELS["padded"].kernel, {"M": 130, "N": 4}, {"T": ["f32"]})
    assert known.sizes == {"M": 130, "N": 4, "P": 256}
    assert static.known(kernel, {"S": 4, "D": 2, "B": 3}, {"T": ["f32"]}).sizes["B_plus_1"] == 4
    with pytest.raises(kgen.KgenError, match="sizes depend on k, a number of the call"):
        static.known(KERNELS["top"].kernel, {"N": 4, "K": 2}, {"T": ["f32"]})
    with pytest.raises(kgen.KgenError, match=r"P is 128, but \(M \+ 127\) // 128 \* 128 is 256"):
        static.known(KERNELS["padded"].kernel, {"M": 130, "N": 4, "P": 128}, {"T": ["f32"]})


def test_files_of_triton_work_sizes_out() -> None:
    """The host part's own function, run here; tests/triton runs the whole."""
    for name, given, want in (
        ("ragged", {"B_plus_1": 5}, {"B": 4}), ("padded", {"M": 129}, {"P": 256}), ("top", {"k": 3}, {"K": 3}),
        ("windows", {"N": 10, "width": 3, "step": 2}, {"W": 3, "L": 4}),
    ):  # fmt: skip
        text = next(iter(backend("triton").written(KERNELS[name].kernel).values()))
        start = text.index("def follow(sizes):")
        space: dict[str, Any] = {}
        exec(text[start : text.index("\n\n\n", start)], space)
        sizes = dict(given)
        space["follow"](sizes)
        assert sizes == given | want
        if name != "top":
            bad = {"ragged": {"B_plus_1": 0}, "padded": {"M": 3, "P": 3}, "windows": {"N": 2, "width": 9, "step": 2}}[name]
            with pytest.raises(ValueError):
                space["follow"](dict(bad))


def test_a_mean_over_named_literals_divides_by_their_sizes() -> None:
    kernel = kgen.loads("""
mean_pool(x: T[H, W]) -> y: T[P, Q] where P = H // 3, Q = W // 2, I = 3, J = 2

y = mean[I, J](x[H = 3*index[P] + index[I], W = 2*index[Q] + index[J] else 0])
""")
    x = torch.randn(7, 9, dtype=torch.float64)
    want = torch.nn.functional.avg_pool2d(x[None], (3, 2))[0]
    for target in ("torch", "cpp"):
        assert torch.allclose(kernel(x, target=target), want, rtol=1e-14, atol=1e-15)


def test_a_gradient_says_the_literals_that_it_reads_behind_names_of_its_own() -> None:
    """The places stand in an equation that the gradient gives a name (t1), and their dims in no parameter or result."""
    kernel = kgen.loads("""
mean_pool(x: T[H, W]) -> y: T[P, Q] where P = H // 3, Q = W // 2, I = 3, J = 2

y = mean[I, J](x[H = 3*index[P] + index[I], W = 2*index[Q] + index[J] else 0])
""")
    x, dy = torch.randn(7, 9, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    kernel(leaves[0], target="torch").backward(dy)
    torch.nn.functional.avg_pool2d(leaves[1][None], (3, 2))[0].backward(dy)
    assert torch.allclose(leaves[0].grad, leaves[1].grad, rtol=1e-14, atol=1e-15)
