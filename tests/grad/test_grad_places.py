"""Gradients of places are places: held to autograd's, and written without a sum over all pairs."""

from __future__ import annotations

import re

import pytest
import torch

from kgen import grad
from kgen.check import check, plain
from kgen.errors import KgenError
from kgen.runtime.evaluate import Evaluator
from kgen.runtime.kernel import Kernel
from kgen.syntax import parse
from kgen.testing.gradients import backward_agrees

HEAD = "f(x: f64[..., 4, 2*N], w: f64[4], z: f64[N, M], n: int = 1) -> y: f64[{dims}]\n\ny = {body}\n"
UNUSED = {"x": "sum[...,4,2,N](x)", "w": "sum[4](w)", "z": "sum[M,N](z)", "n": "n"}
BODIES = {
    "x[N = index[N] - 1 else 0] * x": "..., 4, 2*N",
    "(x^2)[N = index[N] + n else 0.5] * x": "..., 4, 2*N",
    "(x * exp(-x^2))[N = N - 1 - index[N], 2 = 1 - index[2]]": "..., 4, 2*N",
    "x[2 = 0] * tanh(x[2 = 1]) + x[4 = 3, 2 = 0]": "..., 4, N",
    "sum[4](x[N = index[N] - 3 + index[4] else 0] * w)": "..., 2*N",
    "x[N = (index[N] + 1) % N] * x[N = (N + n - index[N]) % N]": "..., 4, 2*N",
    "x[N = 0] * sum[N](x)": "..., 4, 2",
    "(x / sum[N](1 + x^2))[N = index[N] + 1 else 1]": "..., 4, 2*N",
    "sum[4](x * w)[N = 2*index[N] + 1 else 0]": "..., 2*N",
    "sum[...](x)[N = index[N]//2] * w": "4, 2*N",
    "x[2 = index[N] % 2]": "..., 4, N",
    "z[M = index[M] - 1, N = index[N] + 1 else 0] * z": "N, M",
    "x[4 = index[2] * index[2] + 1] + 0 * x[4 = 1]": "..., 2*N",
    "x[4 = index[2]] * z[N = index[M] else 0]": "..., 2, N, M",
    "x[N = n*index[N] + 1 else 0] * z[N = n*index[N] - n, M = 0 else 1]": "..., 4, 2*N",
    "z[N = M*index[M] + 2 else 0] * z": "N, M",
    "sum[4](x[N = index[N] + 2*index[4] - 3 else 2] * w) * z[M = n else 0]": "..., 2*N",
    "x[N = clamp(index[N] - n, 0, N - 1)] * x if index[N] > 1 else x": "..., 4, 2*N",
    "x[N = index[N] * index[N] - n else 0] * z[N = min(index[N], index[M] % N)]": "..., 4, 2*N, M",
    "sum[4](x[4 = (index[4] + 1) % 2] * w)": "..., 2*N",
}


@pytest.mark.parametrize("body", BODIES)
def test_gradients_are_those_of_autograd(body: str) -> None:
    words = set(re.findall(r"\w+", body))
    unused = "".join(f" + 0 * {u}" for name, u in UNUSED.items() if name not in words)
    kernel = plain(check(parse(HEAD.format(dims=BODIES[body], body=body + unused), "f.k")))
    for seed in range(3):
        assert not backward_agrees(kernel, seed).failures


@pytest.mark.parametrize("where", ["", " where M = (N + s*s) // (s*s + 1)"])
def test_a_step_by_a_number_of_the_call_is_turned_round(where: str) -> None:
    """Steps forwards, backwards, and none: what was read at one place adds up there."""
    header = f"f(x: f64[N], w: f64[{'N' if where else 'M'}], s: int, k: int) -> y: f64[M]{where}"
    value = "x[N = s*index[M] + k else 0]" + ("" if where else " * w")
    made = grad.backward(check(parse(f"{header}\n\ny = {value}{' * sum[N](w)' if where else ''}\n", "f.k")), save=False)
    x = torch.randn(13, dtype=torch.float64)
    for step in (-3, -1, 0, 1, 2, 20):
        for k in (-1, 0, 5, 12):
            count = (13 + step * step) // (step * step + 1) if where else 9
            w, dy = torch.randn(13 if where else count, dtype=torch.float64), torch.randn(count, dtype=torch.float64)
            at = step * torch.arange(count) + k
            leaf = x.clone().requires_grad_()
            y = torch.where((at >= 0) & (at < 13), leaf[at.clamp(0, 12)], 0.0) * (w.sum() if where else w)
            (want,) = torch.autograd.grad(y, leaf, dy)
            given = {"dy": dy, "x": x, "w": w, "s": step, "k": k}
            found = Evaluator(made.kernel, {p.name: given[p.name] for p in made.kernel.params}, "exact").run()
            got = dict(zip((r.name for r in made.kernel.results), found, strict=True))["dx"]
            assert torch.allclose(got, want), (step, k)


#: Windows: steps, distances and padding along one dim and two, weights, maxima with equals, steps that leave elements out.
WINDOWS = {
    "a mean": ("y = mean[I, J](x[H = 2*index[P] + index[I] - 1, W = 3*index[Q] + 2*index[J] else 0])", 3),
    "a maximum": ("y = max[I, J](x[H = 2*index[P] + index[I] - 1, W = 3*index[Q] + index[J] else -inf])", 3),
    "a maximum of neighbours": ("y = max[I](exp(x)[H = index[P] + 2*index[I] - 1 else 0])[W = index[Q] else 0]", 3),
    "weights": ("y = sum[I, J](x[H = 2*index[P] + index[I], W = 2*index[Q] + index[J] - 1 else 0] * w)", 3),
    "squares": ("y = sum[I, J](x[H = 2*index[P] + index[I] - 1, W = index[Q] + index[J] - 1 else 1]^2) / 4", 3),
    "apart": ("y = sum[I, J](tanh(x)[H = 5*index[P] + index[I], W = 4*index[Q] - index[J] else 0] * w)", 3),
    "many": ("y = sum[I, J](x[H = 2*index[P] + index[I] - 1, W = 2*index[Q] + index[J] else 0])", 7),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_gradients_of_windows_are_those_of_autograd(name: str) -> None:
    body, size = WINDOWS[name]
    used = "" if "w" in re.findall(r"\b[a-z]+\b", body) else " + 0 * sum[I, J](w)"
    head = f"f(x: f64[..., H, W], w: f64[I, J]) -> y: f64[..., P, Q] where P = (H + 1) // 2, Q = (W + 2) // 3, I = {size}, J = 2"
    kernel = plain(check(parse(f"{head}\n\n{body}{used}\n", "f.k")))
    lines = grad.backward(kernel).kernel.file.source.text.split("\n")
    assert not [line for line in lines if re.search(r"sum\[.*\b[PQ]\b.*\]\(", line) and not line.startswith("dw")]
    for seed in range(3):
        assert not backward_agrees(kernel, seed).failures


#: Conditions, and what is told apart by them, at places of two indices: a windowed sum's gradient asks for the condition where it is read.
CONDITIONS = ("max[I]({} if m else 0)", "prod[I]({})", "sum[I]({}^2 if x > 0.3 else {})", "sum[I](abs({})^abs(x))", "sum[I](atan2({}, x))")


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("body", CONDITIONS)
def test_what_a_gradient_asks_at_a_place_is_a_condition_there(body: str, size: int) -> None:
    value = body.replace("{}", "x[N = index[N] - index[I] else 0.1]")
    head = f"f(x: f64[N], m: bool[N]) -> y: f64[N] where I = {size}"
    kernel = plain(check(parse(f"{head}\n\ny = {value}{'' if 'm' in re.findall('[a-z]+', body) else ' * (1 if m else 0.5)'}\n", "f.k")))
    for seed in range(3):
        assert not backward_agrees(kernel, seed).failures


@pytest.mark.parametrize("target", ["torch", "cpp"])
def test_along_a_dim_without_elements_stands_what_is_said_of_outside(target: str) -> None:
    """Forward and gradient; where nothing is said of outside, the call is refused, whatever a place is clamped to."""
    from kgen import loads

    filled = loads("f(x: T[N], w: T[M]) -> y: T[M]\n\ny = w * (2 + x[N = index[M] else 3])\n")
    windows = loads("f(x: T[H]) -> y: T[P] where P = H // 3, I = 3\n\ny = sum[I](x[H = 3*index[P] + index[I] else 0])\n")
    x, w, short = torch.ones(0, requires_grad=True), torch.rand(3, requires_grad=True), torch.ones(2, requires_grad=True)
    y = filled(x, w, target=target)
    dx, dw = torch.autograd.grad(y.sum(), (x, w))
    assert torch.equal(y, w * 5) and dx.shape == (0,) and torch.equal(dw, torch.full((3,), 5.0))
    none = windows(short, target=target)
    assert none.shape == (0,) and torch.equal(torch.autograd.grad(none.sum(), short)[0], torch.zeros(2))
    for value in ("w + x[N = clamp(index[M], 0, N - 1)] + x[N = index[M] else 0]", "x[N = clamp(index[M], 0, N - 1)]"):
        bare = loads(f"f(x: T[N], w: T[M]) -> (y: T[M], z: T[M])\n\ny = {value}\nz = w\n")
        with pytest.raises(KgenError, match="a place along N, which has size 0"):
            bare(x.detach(), w.detach(), target=target)


def derived(header: str, body: str) -> str:
    text = grad.backward(check(parse(f"f({header}) -> y: T[..., N]\n\ny = {body}\n", "f.k"))).kernel.file.source.text
    return text.partition("\n\n")[2].strip()


#: The greatest of windows of so many elements, in steps, so far apart; what is outside is -inf.
GREATEST = """greatest(x: T[..., H, W]) -> y: T[..., P, Q] where I = {m}, J = {n}, P = (H + 2 - {d}*({m} - 1) - 1) // {s} + 1, Q = (W + 2 - {d}*({n} - 1) - 1) // {s} + 1

y = max[I, J](x[H = {s}*index[P] + {d}*index[I] - 1, W = {s}*index[Q] + {d}*index[J] - 1 else -inf])
"""


@pytest.mark.parametrize("target", ["torch", pytest.param("cpp", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("m", "n", "s", "d"), [(3, 3, 2, 1), (4, 4, 1, 1), (2, 3, 2, 2), (5, 2, 3, 1), (2, 2, 2, 1)])
def test_the_greatest_of_windows_share_a_cotangent(m: int, n: int, s: int, d: int, target: str) -> None:
    """Evenly where several are alike, and NaN goes to all of a window that has one: as in torch.amax, by bits."""
    torch.manual_seed(m)
    kernel = check(parse(GREATEST.format(m=m, n=n, s=s, d=d), "greatest.k"))
    made = grad.backward(kernel, save=False).kernel
    assert " << " in made.file.source.text
    x = torch.randint(-3, 4, (2, 9, 13)).float()
    x[0, 3, 4], x[1, 8, 12], x[1, 0, :4] = torch.nan, torch.inf, -torch.inf
    given = x.clone().requires_grad_()
    room = torch.nn.functional.pad(given, (1, 1, 1, 1), value=-torch.inf)
    seen = room.unfold(1, d * (m - 1) + 1, s).unfold(2, d * (n - 1) + 1, s)[..., ::d, ::d]
    y = seen.amax((-1, -2))
    dy = torch.randn(y.shape)
    (want,) = torch.autograd.grad(y, given, dy)
    torch.testing.assert_close(Kernel(made)(dy=dy, x=x, target=target), want, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    ("header", "body", "gradient"),
    [
        ("x: T[..., N]", "x[N = index[N] - 1 else 0]", "dx = dy[N = index[N] + 1 else 0]"),
        ("x: T[..., N]", "x[N = N - 1 - index[N]]", "dx = dy[N = N - index[N] - 1]"),
        ("x: T[..., N]", "x[N = (index[N] + 3) % N]", "dx = dy[N = (index[N] - 3) % N]"),
        ("x: T[..., 2*N]", "x[2 = 1]", "dx = dy if index[2] == 1 else 0"),
        ("x: T[..., N], s: int", "x[N = s*index[N] else 0]",
         "dx = (sum[N](dy) if s == 0 else dy[N = index[N] // s else 0]) if index[N] % s == 0 else 0"),
        ("x: T[..., N]", "x[N = 0]", "dy_ = sum[N](dy)\ndx  = dy_ if index[N] == 0 else 0"),
    ],
)
def test_a_place_is_turned_round(header: str, body: str, gradient: str) -> None:
    assert derived(header, body) == gradient


@pytest.mark.parametrize(("header", "body", "gradient"), [
    ("x: T[..., N], s: int", "x[N = clamp(index[N] - s, 0, N - 1)]",
     "dx = sum[N](dy if index[N_2] == clamp(index[N] - s, 0, N - 1) else 0)[N_2 = index[N]]"),
    ("x: T[..., 4*N]", "sum[4](x[4 = (index[4] + 1) % 2])", "dx = sum[4](dy if index[N4_2] == (index[4] + 1) % 2 else 0)[N4_2 = index[4]]"),
    ("x: T[..., N], s: int", "x[N = index[N] * index[N] - s else 0]",
     "dx = sum[N](dy if index[N_2] == index[N] * index[N] - s else 0)[N_2 = index[N]]"),
])  # fmt: skip
def test_a_place_that_cannot_be_turned_round_is_a_number(header: str, body: str, gradient: str) -> None:
    """Its gradient is a sum by that number, whatever the place: of what is read at none, at one and at several."""
    assert derived(header, body) == gradient


@pytest.mark.parametrize(("header", "body"), [("x: T[..., N, M]", "sum[M](x[N = max(index[N] - 1, 0), M = max(index[M] - 1, 0)])")])
def test_what_is_not_known_is_told_at_its_place(header: str, body: str) -> None:
    with pytest.raises(KgenError, match="the gradient of this place is not known"):
        derived(header, body)
