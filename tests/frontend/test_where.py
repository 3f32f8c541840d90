"""Sizes that follow from others: what a header's `where` may say, how it is set, and what is wrong in one."""

from __future__ import annotations

import pytest

import kgen.backends
from kgen import check, grad, pipeline, syntax, typeset
from kgen.errors import KgenError


def checked(header: str, *equations: str) -> check.Kernel:
    return check.check(syntax.parse(f"f({header}\n\n" + "\n".join(equations or ("y = x",)) + "\n", "f.k"))


def error(header: str, *equations: str) -> str:
    with pytest.raises(KgenError) as caught:
        checked(header, *equations)
    assert all(d.span is not None for d in caught.value.diagnostics)
    return "\n".join(f"{d.message} | {d.help}" for d in caught.value.diagnostics)


def backward(header: str, *equations: str) -> str:
    text = grad.backward(checked(header, *equations)).kernel.file.source.text
    return text[text.index("f_backward") :].strip()


def test_clauses_are_set_behind_the_results_and_go_over_lines() -> None:
    text = "f(x:T[M,N],k:int)->y:T[P,K]  where\n  P=(M+127)//128*128 ,\n K= k\n\ny = x[M=index[P],N=index[K] else 0]\n"
    want = "f(x: T[M, N], k: int) -> y: T[P, K] where P = (M + 127) // 128 * 128, K = k\n\ny = x[M = index[P], N = index[K] else 0]\n"
    once = typeset.format_file(syntax.parse(text))
    assert once == want and typeset.format_file(syntax.parse(once)) == once
    long = "f(" + ", ".join(f"parameter{k}: T[N]" for k in range(6)) + ") -> y: T[P]\nwhere P = N + 1\n"
    once = typeset.format_file(syntax.parse(long))
    assert "\n    where P = N + 1\n" in once and typeset.format_file(syntax.parse(once)) == once


def test_an_axis_may_be_an_expression_and_stays_one() -> None:
    text = "f(x: T[S], o: i64[B + 1], q: f32[(B + 1) * 2, 2*D]) -> y: T[B]\n\ny = o[B + 1 = index[B]] + sum[S](x) + sum[(B + 1) * 2, 2, D](q)\n"
    assert typeset.format_file(syntax.parse(text)) == text
    kernel = check.check(syntax.parse(text))
    assert [p.dims for p in kernel.params] == [("S",), ("B_plus_1",), ("Size_begin_B_plus_1_end_times_2", "2", "D")]
    assert len({p.dims for p in checked("a: T[A + B*2], b: T[(A + B) * 2], x: T[A, B]) -> y: T[A, B]", "y = x + sum[A + B * 2](a) + "
                                       "sum[(A + B) * 2](b)").params}) == 3  # fmt: skip


def test_where_is_a_name_elsewhere() -> None:
    kernel = checked("x: T[N], where: T[N]) -> y: T[N]", "where_ = where * x", "y = where_")
    assert [p.name for p in kernel.params] == ["x", "where"]
    assert syntax.parse("f(x: T[N]) -> y: T[N]\n\nwhere = x\ny = where\n").statements[1].name.name == "where"


def test_what_follows_proves_places() -> None:
    for place in ("index[B]", "index[B] + 1", "B", "0", "B - index[B]"):
        checked("o: i64[E], x: T[B]) -> y: i64[B] where E = B + 1", f"y = o[E = {place}] + i64(x)")
    for place in ("index[B] + 2", "B + 1", "index[B] - 1", "B - 1"):  # with no B there is no B - 1
        assert "outside" in error("o: i64[E], x: T[B]) -> y: i64[B] where E = B + 1", f"y = o[E = {place}] + i64(x)"), place
    checked("x: T[N]) -> y: T[H] where N = 2*H", "y = x[N = 2*index[H] + 1]")
    assert "outside" in error("x: T[N]) -> y: T[H] where H = (N + 1) // 2", "y = x[N = 2*index[H]]")


def test_literals_with_names_are_literals() -> None:
    kernel = checked("x: T[A, P, Q]) -> y: T[A, P, Q] where P = 4, Q = P", "y = x if index[P] == index[Q] else 0")
    assert kernel.literals == {"4_P": 4, "4_Q": 4} and not kernel.clauses
    halves = checked("x: T[N*P]) -> y: T[N*P] where P = 2", "y[P = 0] = x[P = 1]", "y[P = 1] = x[P = 0] * P")
    assert halves.signature() == "f(x: T[N*P]) -> y: T[N*P] where P = 2"
    assert "`y[P = 1]` has no equation" in error("x: T[N*P]) -> y: T[N*P] where P = 2", "y[P = 0] = x[P = 1]")
    assert "`P` is a dim and cannot be assigned" in error("x: T[N*P]) -> y: T[N*P] where P = 2", "P = x", "y = P")


def test_literals_with_names_lower_to_their_numbers() -> None:
    """`kgen fuzz` found it: a mean over one, and a store of what no index runs along."""
    kernel = checked("x: T[N, P], s: T[N]) -> (y: T[N], s': T[N]) where P = 4", "y = mean[P](x) + P", "s' = s[N = index[N] + 1 else 2]")
    found = {(let.expr.name, let.expr.attrs) for let in pipeline.expanded(kernel, pipeline.usual(kernel)).lets}
    assert ("lit", ("4",)) in found and not any("_" in str(a) for _, attrs in found for a in attrs if str(a)[0].isdigit() and a != "4_P")
    assert "y" in kgen.backends.backend("cpp").render(kernel)


def test_backwards_say_what_they_need() -> None:
    text = backward("x: T[M, N]) -> y: T[P, N] where P = (M + 127) // 128 * 128", "y = x[M = index[P] else 0]")
    assert text == "f_backward(dy: T[P, N], x: T[M, N]) -> dx: T[M, N] where P = (M + 127) // 128 * 128\n\ndx = dy[P = index[M] else 0]"
    text = backward("x: T[N], n: int) -> y: T[K] where K = n", "y = x[N = index[K] else 0]")
    assert text == "f_backward(dy: T[K], x: T[N]) -> dx: T[N]\n\ndx = dy[K = index[N] else 0]"
    text = backward("x: T[B], o: i64[B + 1]) -> y: T[B]", "y = x * o[B + 1 = index[B] + 1]")
    assert text == "f_backward(dy: T[B], o: i64[B + 1]) -> dx: T[B]\n\ndx = dy * o[B + 1 = index[B] + 1]"
    text = backward("x: T[N*P]) -> y: T[P*N] where P = 2", "y = x * P")
    assert text == "f_backward(dy: T[P*N]) -> dx: T[N*P] where P = 2\n\ndx = dy * 2"


def test_what_no_call_can_work_out_is_an_error() -> None:
    assert "does not follow from that of E | a clause is solved" in error("x: T[E]) -> y: T[B] where E = B // 2", "y = sum[E](x) + index[B]")
    assert "goes round in a circle, or needs that of B" in error("x: T[N]) -> y: T[A] where A = B + 1, B = A - 1", "y = sum[N](x) + index[A]")
    assert "dim K of `y` is no parameter's" in error("x: T[N]) -> y: T[K]", "y = x")
    assert "the size of E is given twice" in error("x: T[N]) -> y: T[E] where E = N + 1, E = N", "y = x[N = index[E] else 0]")
    assert "`lr` is a float, and sizes" in error("x: T[N], lr: float) -> y: T[E] where E = lr", "y = x[N = index[E] else 0] * lr")
    assert "`x` is a tensor, and sizes" in error("x: T[N]) -> y: T[E] where E = x", "y = x[N = index[E] else 0]")
    assert "`cont` is not defined | did you mean `count`?" in error("x: T[N], count: int) -> y: T[E] where E = cont", "y = x[N = index[E] else 0] * count")
    assert "H is 0, which is no size of a dim" in error("x: T[N]) -> y: T[H, N] where H = 0", "y = x + index[H]")
    assert "`/` is no part of a size | sizes are whole" in error("x: T[N]) -> y: T[E] where E = N / 2", "y = x[N = index[E] else 0]")
    assert "this is no part of a size" in error("x: T[N]) -> y: T[E] where E = 2.5 * N", "y = x[N = index[E] else 0]")
    assert "`e` does not begin with a capital" in error("x: T[N]) -> y: T[N] where e = 2*N")
    assert "`n` is both a dim and a parameter" in error("x: T[N], n: int) -> y: T[N] where n = 2", "y = x * n")
    assert "`T` is both a dim and a dtype" in error("x: T[N]) -> y: T[N] where T = 2")
    assert "`*` cannot stand between dims" in error("x: T[2*N]) -> y: T[]", "y = sum[2*N](x)")
    assert "is never used" in error("x: T[N], n: int) -> y: T[N]")
    assert "`z` is never used" in error("x: T[N], z: T[C]) -> y: T[N] where B = N + 1")


def test_a_number_and_a_tensor_may_serve_a_size_alone() -> None:
    checked("x: T[N], k: int) -> y: T[N, K] where K = k", "y = x + index[K]")
    checked("x: T[N], z: T[C]) -> y: T[N, D] where D = C + 1", "y = x + index[D]")
