"""A kernel over the parts of its tensors: halves are operands of their own, and few terms are written out."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.check import check, plain
from kgen.parts import over_parts, parted
from kgen.runtime.evaluate import Evaluator
from kgen.syntax import parse
from kgen.testing.bounds import Analysis


def parts_of(header: str, *equations: str) -> str:
    made = parted(plain(check(parse(f"f({header}\n\n" + "\n".join(equations) + "\n", "f.k"))))
    return "" if made is None else made.kernel.file.source.text.partition("\n\n")[2].strip()


def test_halves_are_operands_and_results() -> None:
    text = parts_of("x: T[..., 2*N]) -> y: T[..., 2*N]", "y[2 = 0] = x[2 = 1]", "y[2 = 1] = -x[2 = 0]")
    assert text == "y_0 = x_1\ny_1 = -x_0"


def test_what_runs_along_a_literal_dim_is_written_out() -> None:
    text = parts_of("x: T[..., N], w: T[3]) -> y: T[..., N]", "y = sum[3](x[N = index[N] - 1 + index[3] else 0] * w)")
    assert text == "y = x[N = index[N] - 1 else 0] * w_0 + x * w_1 + x[N = index[N] + 1 else 0] * w_2"


def test_a_mirror_image_and_a_choice_by_the_index() -> None:
    assert parts_of("x: T[2*N]) -> y: T[2*N]", "y = x[2 = 1 - index[2]] if index[2] == 0 else x[2 = 0] * 2") == "y_0 = x_1\ny_1 = x_0 * 2"
    text = parts_of("x: T[2*N]) -> y: T[N]", "y = x[2 = index[N] % 2]")
    assert text == "y = x_0 if index[N] % 2 == 0 else x_1"


def test_a_reduction_over_parts_and_more_is_one_reading() -> None:
    assert parts_of("x: T[..., 2*N]) -> y: T[...]", "y = sum[2, N](x * x[2 = 1 - index[2]])") == "y = sum[N](x_0 * x_1 + x_1 * x_0)"


def test_what_has_no_places_stays_whole() -> None:
    kernel = plain(check(parse("f(x: T[..., 2*N]) -> y: T[..., N]\n\ny = sum[2](x)\n", "f.k")))
    assert parted(kernel) is None and over_parts(kernel) is kernel
    assert not parts_of("x: T[..., 2*N]) -> y: i64[..., N]", "y = argmax[2](x) + (index[2])[2 = 0]")


def test_a_choice_among_parts_keeps_its_fill() -> None:
    """A place along a literal dim that an index gives, and that may lie outside, is not the last part there."""
    text = parts_of("x: T[4*N]) -> y: T[N]", "y = x[4 = 2*index[N] + 1 else 1]")
    assert text.startswith("t1 = 2 * index[N] + 1") and text.endswith("else 1")


MIXED = {
    "a number": ("x: f64[N, 3], y: f32[N]) -> z: f64[N, 3]", "t[3 = 0] = x[3 = 0]", "t[3 = 1] = .5", "t[3 = 2] = 1", "z = y / (1.5 + t / 2)"),
    "an index": ("x: i8[N, 3]) -> z: i64[N, 3]", "z = x * (index[3] + 200)"),
    "a comparison": ("x: i8[N, 3]) -> z: i8[N, 3]", "z = x * (index[3] + 200 > x)"),
    "a sum of each part": ("x: f64[N, 3], y: f32[N]) -> z: f64[N, 3]", "z = y * sum[N](x) + 0 * index[3]"),
    "a fill": ("x: f64[N, 3], y: f32[N]) -> z: f64[N, 3]", "t = x[3 = index[3] - 1 else y]", "z = t * t"),
}


@pytest.mark.parametrize("name", MIXED)
def test_parts_promote_as_the_whole_does(name: str) -> None:
    """Beside a float32 a part of a float64 that is a number, or has no dim left, would be one too."""
    header, *equations = MIXED[name]
    kernel = kgen.loads(f"f({header}\n\n" + "\n".join(equations) + "\n")
    x, y = torch.tensor([[0.3, 0.7, 0.9]] * 2), torch.tensor([0.1, 0.2])
    given = ((x * 10).to(torch.int8),) if "i8" in header else (x.double(), y)
    (exact,) = Analysis(kernel.kernel, dict(zip(("x", "y"), given)), "cpp").results()
    assert ((kernel(*given, target="torch") - exact.exact).abs() <= exact.bound).all()


@pytest.mark.parametrize("target", ["torch", "cpp"])
@pytest.mark.parametrize(("header", "dtype"), [("x: T[N, 3], s: float = 0.7) -> e: T32[3]", torch.float64), ("x: T[N, 3], s: float = 0.7) -> e: f64[3]", torch.bfloat16)])
@pytest.mark.usefixtures("built_quickly")
def test_a_number_is_rounded_as_a_result_of_its_own_would_be(header: str, dtype: torch.dtype, target: str) -> None:
    """Beside a part in f32 it stays what f64 has of it."""
    kernel = kgen.loads(f"f({header}\n\ne[3 = 0] = f32(3)\ne[3 = 1] = 1e-3\ne[3 = 2] = s / 3\n")
    x = torch.ones(2, 3, dtype=dtype)
    (whole,) = Evaluator(plain(kernel.kernel), {"x": x, "s": 0.7}).run()
    assert kernel(x, target=target).tolist() == whole.tolist() == [3.0, 1e-3, 0.7 / 3]


#: Numbers chosen beside values of another dtype: their choice has that dtype, in which it is rounded, or wraps.
CHOSEN = {
    "a literal": ("x: T[N, 3]) -> y: T32[3]", "y = 1e-3 if index[3] == 1 else f32(16)"),
    "a parameter": ("x: T[N, 3], s: float = 0.7) -> y: T32[3]", "y = s if index[3] == 1 else f32(16)"),
    "a product": ("x: T[N, 3], s: float = 0.7) -> y: T[N, 3]", "y = 9 * (s if index[3] == 1 else x)"),
    "an integer": ("x: T[N, 3], n: int = 40) -> y: i64[3]", "y = 2^n if index[3] == 1 else i32(3)"),
    "a large one": ("x: T[N, 3], n: int = 40) -> y: f64[3]", "y = 2^n + 1 if index[3] == 1 else f32(3)"),
    "a fill": ("x: f32[N, 3], s: float = 0.7) -> y: f64[N, 3]", "y = x[3 = index[3] - 1 else s]"),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_chosen_number_is_rounded_as_its_choice_is(name: str) -> None:
    """Alone it would keep more: the bits are those of the whole, operator by operator."""
    header, equation = CHOSEN[name]
    kernel = kgen.loads(f"f({header}\n\n{equation}\n")
    for dtype in (torch.float32, torch.float64) if "T[" in header else (torch.float32,):
        given = {"x": torch.full((2, 3), 0.7, dtype=dtype), "s": 0.7, "n": 40}
        (whole,) = Evaluator(plain(kernel.kernel), {p.name: given[p.name] for p in kernel.kernel.params}).run()
        assert torch.equal(kernel(given["x"], target="torch"), whole), (dtype, over_parts(plain(kernel.kernel)).file.source.text)


def test_equations_keep_their_names() -> None:
    """Those of parts, and those that run along no part at all."""
    angles = "angle = index[S] * 2.0^-index[D]", "c = cos(angle)", "s = sin(angle)"
    text = parts_of("x: T[S, 2*D]) -> y: T[S, 2*D]", *angles, "y[2 = 0] = x[2 = 0] * c - x[2 = 1] * s", "y[2 = 1] = x[2 = 1] * c + x[2 = 0] * s")
    assert [line.partition(" =")[0].strip() for line in text.splitlines()] == ["angle", "c", "s", "y_0", "y_1"]
