"""What derivatives are made of: which parameters they take, what is saved and named, what is not computed twice."""

from __future__ import annotations

import pytest

import kgen
from kgen import check, grad, syntax
from kgen.backends import backend
from kgen.tape import Tape


def kernel(text: str) -> check.Kernel:
    return check.check(syntax.parse(text, "f.k"))


def text(derived: grad.Backward | grad.Forward) -> str:
    return derived.kernel.file.source.text


def test_a_size_is_taken_from_the_tensor_with_the_fewest_dims() -> None:
    """Of `w` and `x` only the shape is needed, and either would tell M."""
    assert grad.backward(kernel("f(w: f32[M], x: f32[M, N]) -> y: f32[N]\n\ny = sum[M](x + w)\n"), wanted=["x"]).sized == ("w",)
    assert grad.backward(kernel("f(x: f32[M, N], w: f32[M]) -> y: f32[N]\n\ny = sum[M](x + w)\n"), wanted=["x"]).sized == ("w",)


def test_what_is_saved_beside_what_is_a_result_already() -> None:
    """One of two sums is a result in the dtype in which it is computed: it is not written again, the other is."""
    f = kernel("f(x: f32[M, N]) -> (s: f32[M], y: f32[M, N])\n\ns = sum[N](exp(x))\ny = x / s / sum[N](sin(x))\n")
    made = grad.backward(f)
    assert [r.name for r in made.forward.results] == ["s", "y", "sum_N"] and set(made.saved) == {"s", "sum_N"}
    assert made.forward.file.source.name == f"{made.forward.name}.k"
    for target in ("cpp", "triton"):  # and it is a kernel like any other
        assert "sum_N" in backend(target).render(made.forward)


def test_what_is_saved_may_be_made_of_the_size_of_leading_dims() -> None:
    made = grad.backward(kernel("f(x: T[..., N]) -> y: T[..., N]\n\ny = x * exp(sum[N](x * x / size[...](x)))\n"))
    assert made.saved and "size[...](x)" in made.forward.file.source.text


def test_no_value_of_the_forward_is_computed_twice() -> None:
    """The sine's rule asks for the cosine, which the forward has."""
    assert text(grad.backward(kernel("f(x: T[N]) -> y: T[N]\n\ny = sin(x) * cos(x)\n"))).count("cos(x)") == 1


def test_what_does_not_move_along_a_dim_is_picked_as_it_is() -> None:
    """The tangent of `x + s` lacks N where only `s` moves: picking along N takes it once, and counts nothing."""
    made = grad.forward_mode(kernel("f(x: T[M, N], s: T[M], t: i64[M]) -> y: T[M]\n\ny = pick[N](x + s, t)\n"), given=["s"])
    assert text(made).endswith("\n\ndy = ds\n"), text(made)


def test_signs_meet_and_go() -> None:
    assert "dx = dy\n" in text(grad.backward(kernel("f(x: T[N]) -> y: T[N]\n\ny = -(-x)\n")))
    assert "dx = dy\n" in text(grad.forward_mode(kernel("f(x: T[N]) -> y: T[N]\n\ny = -(-x)\n"))).replace("dy = dx", "dx = dy")


@pytest.mark.parametrize("move", ["max[N](x)", "+max[N](x)", "max[N](x) + min[N](x)"])
@pytest.mark.parametrize("over", ["exp(z)", "z - mean[N](z)", "z - min[N](z)", "z - max[N](z)", "exp(z) / sum[N](exp(z))"])
def test_a_shift_that_cancels_has_no_gradient(move: str, over: str) -> None:
    """Only where the rows' shift cancels; where it does not, the maximum's gradient stays."""
    made = text(grad.backward(kernel(f"f(x: T[M, N]) -> y: T[M, N]\n\nz = x - ({move})\ny = {over}\n"), save=False))
    assert ("== max[N](x)" in made or "x ==" in made) == (over == "exp(z)"), made


@pytest.mark.parametrize("sign, holds", [("<", {-1}), ("<=", {-1, 0}), (">", {1}), (">=", {0, 1}), ("==", {0}), ("!=", {-1, 1})])
def test_conditions_of_literals_are_known(sign: str, holds: set[int]) -> None:
    tape = Tape(kernel("f(x: T[N]) -> y: T[N]\n\ny = x\n"))
    for a, b in ((1, 2), (2, 2), (2, 1)):
        assert tape.known(tape.build(f"{a} {sign} {b}")) == (((a > b) - (a < b)) in holds)


def test_refusals_say_which_derivative() -> None:
    f = kernel("f(x: T[N]) -> y: T[N]\n\ny = digamma(x)\n")
    for derive in (grad.backward, grad.forward_mode):
        with pytest.raises(kgen.KgenError, match="f: the derivative of `digamma` is not known"):
            derive(f)
    with pytest.raises(kgen.KgenError, match="adamw has no forward mode: it writes `p` in place"):
        grad.forward_mode(kgen.load("adamw").kernel)
    lines = "\n".join(f"a{i + 1} = sin(a{i}) * cos(a{i}) + tanh(a{i})" for i in range(350))
    with pytest.raises(kgen.KgenError, match="its forward mode would be too long for one kernel") as error:
        grad.forward_mode(kernel(f"f(x: T[...]) -> y: T[...]\n\na0 = x\n{lines}\ny = a350"))
    assert "split it into several kernels" in str(error.value)
