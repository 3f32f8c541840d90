"""Selection along a row: what is found is torch's, on every target that runs here; its language and its gradients."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen import check, pipeline, syntax  # noqa: E402
from kgen.backends import backend  # noqa: E402
from kgen.runtime.evaluate import Evaluator  # noqa: E402
from kgen.testing.correlated import Correlated  # noqa: E402
from tests import warm  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402
from tests.selection.select_cases import INF, KTH, MASK, WORDS, amounts, found_words, kth, mask, rows, same, words  # noqa: E402

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_formulas_are_torchs(dtype):
    found, masked = kgen.loads(KTH).kernel, kgen.loads(MASK).kernel
    for n in (1, 2, 7, 33):
        x = rows(n, dtype)
        for k in amounts(n):
            v, i = Evaluator(found, {"x": x, "k": k}).run()
            assert same(v, kth(x, k)[0]) and same(i, kth(x, k)[1])
            assert same(Evaluator(masked, {"x": x, "k": k}).run()[0], mask(x, k))
            if 1 <= k <= n:
                assert same(v, x.topk(k).values[..., -1]) and same(v, x.kthvalue(n - k + 1).values)


@pytest.mark.parametrize("dtype", [torch.float32, *(pytest.param(d, marks=pytest.mark.slow) for d in FLOATS if d != torch.float32)], ids=str)
def test_cpp_finds_what_torch_finds(dtype, built_quickly):
    found = kgen.loads(KTH)
    for n in (1, 5, 33, 100, 1000):
        x = rows(n, dtype)
        for k in amounts(n):
            v, i = found(x, k, target="cpp")
            assert same(v, kth(x, k)[0]) and same(i, kth(x, k)[1]), (n, k)
            assert same(found(x.T.contiguous().T, k, target="cpp")[0], v)


@pytest.mark.slow
def test_long_rows_in_segments(built_quickly):
    masked = kgen.loads(MASK)
    x = rows(70001, torch.float32)
    for k in (1, 50, 30000):
        assert same(masked(x, k, target="cpp"), mask(x, k))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("text, wanted", [(KTH, kth), (MASK, lambda x, k: (mask(x, k),))], ids=["kth", "mask"])
def test_emulated_cuda_finds_what_torch_finds(text, wanted, tmp_path):
    given = [rows(n, torch.float32) for n in (5, 33, 1000, 20000)]
    given.append(rows(40, torch.float32).T.contiguous().T)
    run = Emulated(text, tmp_path, *((x, 3) for x in given))
    for x in given:
        for k in (1, 7, x.shape[-1], x.shape[-1] + 1, 0):
            assert all(same(a, b) for a, b in zip(run(x, k).values(), wanted(x, k), strict=True)), (x.shape, k)


@pytest.mark.slow
def test_interpreted_triton_finds_what_torch_finds(tmp_path):
    pytest.importorskip("triton", reason="triton is not installed")
    for name, text in (("kth", KTH), ("masked", MASK), ("words", WORDS)):
        (tmp_path / f"{name}.py").write_text(backend("triton").render(kgen.loads(text).kernel))
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    script = Path(__file__).parent / "interpreted_selection.py"
    done = warm.run(script, tmp_path, env=env)
    assert done.returncode == 0, done.stderr[-3000:]


def test_integers_and_several_dims(built_quickly):
    kernel = kgen.loads("f(x: i8[..., M, N], k: i64[...]) -> y: i8[...]\n\ny = kth[M, N](x, k)\n")
    x = torch.randint(-128, 128, (3, 4, 5), dtype=torch.int8)
    k = torch.tensor([1, 7, 20])
    want = x.flatten(1).sort(descending=True).values.gather(1, k[:, None] - 1)[:, 0]
    assert same(kernel(x, k, target="cpp"), want) and same(kernel(x, k, target="torch"), want)


@pytest.mark.parametrize("target", ["torch", "cpp"])
def test_unsigned_integers_are_in_their_own_order(target, built_quickly):
    """Fuzzing found that torch's reading took those from 2^63 on as negative, and ended at its carrier's ends."""
    kernel = kgen.loads(WORDS)
    for n in (1, 2, 13):
        given = words(n)
        for k in amounts(n):
            assert all(same(a, b) for a, b in zip(kernel(*given, k, target=target), found_words(*given, k), strict=True)), (n, k)


def test_unsigned_weights_are_not_negative(built_quickly):
    kernel = kgen.loads("f(d: u64[N], p: f64[M]) -> i: i64[M]\n\ni = reach[N](d, p)\n")
    d = torch.tensor([2**63, 2**62, 2**64 - 1], dtype=torch.uint64)
    p = torch.tensor([0.0, 1.0, 2.0**63, 1.25 * 2**63, 1.5 * 2**63, 3.0 * 2**63, 4.0 * 2**63], dtype=torch.float64)
    for target in ("torch", "cpp"):
        assert kernel(d, p, target=target).tolist() == [-1, 0, 0, 1, 1, 2, 3], target


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_emulated_cuda_has_unsigned_integers_in_their_own_order(tmp_path):
    given = [words(n) for n in (1, 13, 300)]
    run = Emulated(WORDS, tmp_path, *((*x, 3) for x in given))
    for x in given:
        for k in amounts(x[0].shape[-1]):
            assert all(same(a, b) for a, b in zip(run(*x, k).values(), found_words(*x, k), strict=True)), (x[0].shape, k)


def test_a_token_is_drawn_where_its_probability_lies(built_quickly):
    draw = kgen.loads("draw(p: f32[..., N], u: f32[...]) -> i: i64[...]\n\ni = reach[N](p, u)\n")
    p = torch.tensor([[0.25, 0.0, 0.5, 0.25]]).expand(6, 4)
    u = torch.tensor([0.1, 0.25, 0.26, 0.75, 1.0, 1.5])
    assert draw(p, u, target="cpp").tolist() == draw(p, u, target="torch").tolist() == [0, 0, 2, 2, 3, 4]


@pytest.mark.parametrize("target", ["torch", pytest.param("cpp", marks=pytest.mark.slow)])
def test_the_greatest_come_in_order_with_their_places(target, built_quickly):
    top, x = kgen.load("topk"), rows(19, torch.float32)[:4]
    v, i = top(x, target=target)
    want = [kth(x, k) for k in range(1, 9)]
    assert same(v, torch.stack([w for w, _ in want], -1)) and same(i, torch.stack([w for _, w in want], -1))


def test_along_a_long_literal_dim_each_place_is_a_row():
    kernel = kgen.loads("f(x: T[M, N]) -> v: T[M, 64]\n\nv = kth[N](x, index[64] + 1)\n").kernel
    (one,) = pipeline.plan(kernel, kernel.bindings()[0]).passes
    assert one.rows == ("M", "64") and one.inner == ("N",)


def test_gradients_go_to_what_was_found_and_equals_share():
    kernel = kgen.loads(KTH)
    x = torch.tensor([[3.0, 1.0, 2.0, 2.0], [5.0, 4.0, 0.0, 1.0]], requires_grad=True)
    v, _ = kernel(x, 2, target="torch")
    v.backward(torch.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [[0, 0, 0.5, 0.5], [0, 10, 0, 0]]
    x.grad = None
    kernel(x, 9, target="torch")[0].sum().backward()  # beyond the row there is none
    assert x.grad.tolist() == [[0] * 4] * 2


@pytest.mark.parametrize("body, message", [
    ("cutoff[N](x, 1)", "`cutoff` takes 3 arguments, not 2"),
    ("cutoff[N](x > 0, 1, 2)", "`cutoff` of a bool"),
    ("cutoff[N](x, 1, x)", "the amount of `cutoff[N]` has dim N itself"),
    ("reach[N](x, M > 3)", "the amount of `reach` is a number, not a bool"),
    ("cutoff[M](x, 1, 2)", "`cutoff` reduces over M, which `x` does not have"),
    ("topk_mask(x, 2)", "`topk_mask` takes dims"),
])  # fmt: skip
def test_what_a_search_does_not_take(body, message):
    text = f"f(x: f32[N], w: f32[M]) -> y: f32[M]\n\ny = w * f32({body})\n"
    with pytest.raises(kgen.KgenError) as caught:
        check.check(syntax.parse(text, "f.k"))
    assert message in str(caught.value)


def test_a_search_has_a_reading_of_its_own():
    text = "f(x: T[..., N], k: int) -> (a: T[...], b: T[...], c: T[...])\n\na = max[N](x)\nb = kth[N](x, k)\nc = kth[N](x, k + 1) - sum[N](x)\n"
    kernel = kgen.loads(text).kernel
    (one,) = pipeline.plan(kernel, kernel.bindings()[0]).passes
    assert [sorted(r.expr.name for r in f.reductions) for f in one.phases if f.element] == [["max", "sum"], ["cutoff"], ["cutoff"]]


def test_the_bound_of_a_search_has_the_shape_of_its_answer():
    """Fuzzing found weights without leading dims, whose places were taken for those of the elements."""
    text = "f(y: T[..., N, C]) -> (a: bool[], b: i64[..., C])\n\na = isfinite(var[...](kth[N, C](y - y, 7)))\nb = argmin[N](y) + reach[N](y <= y, 1)\n"
    kernel = kgen.loads(text).kernel
    for r in Correlated(kernel, {"y": torch.randn(2, 3, 4)}, "cpp").results():
        assert r.exact.shape == r.bound.shape


def test_nothing_static_is_written_of_a_search():
    from kgen.runtime import static

    with pytest.raises(kgen.KgenError, match="it searches along a row"):
        static.source(kgen.loads(MASK).kernel, "cpp", {"N": 8}, {"T": ("f32",)})


def test_nothing_reaches_infinity_but_infinity():
    x = torch.tensor([[INF, 1.0, -INF], [-INF, -INF, -INF]])
    kernel = kgen.loads(KTH).kernel
    assert Evaluator(kernel, {"x": x, "k": 3}).run()[0].tolist() == [-INF, -INF]


def test_a_search_over_leading_dims_counts_those_that_another_parameter_has() -> None:
    """As a sum does: each element of x counts once for each of its places in z."""
    made = kgen.loads("f(x: T[..., N], z: T[..., N]) -> (m: T[], y: T[..., N])\n\nm = cutoff[N, ...](x, 1, 7)\ny = x + z\n")
    x, z = torch.arange(40.0).reshape(8, 5), torch.zeros(2, 8, 5)
    m, _ = Evaluator(made.kernel, {"x": x, "z": z}).run()
    assert m.item() == 36  # 39, 38 and 37, each twice, are six


@pytest.mark.parametrize("target", ["torch", "cpp"])
def test_weights_of_u64_are_as_large_as_they_are(target: str, built_quickly) -> None:
    """Beside a float amount: of what is negative as an i64 the bound said nothing."""
    found = kgen.loads("f(w: u64[M, N], p: f32[M]) -> i: i64[M]\n\ni = reach[N](w, p)\n")
    given = torch.tensor([[1, 2**62], [-1, 1]]).view(torch.uint64), torch.full((2,), 1e19)
    (want,) = Correlated(found.kernel, dict(zip("wp", given, strict=True)), "cpp").results()
    assert want.exact.tolist() == [2, 0] and want.bound.tolist() == [0, 0]
    assert found(*given, target=target).tolist() == [2, 0]
