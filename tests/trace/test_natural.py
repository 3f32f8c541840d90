"""Functions out of people's models become kernels as they are: values and gradients are those of the functions in eager torch."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kgen
from kgen.trace import to_spec, trace
from tests.trace.natural import CASES
from tests.trace.written import module

IDS = [f.__name__ for f, _ in CASES]


def tensors(shapes: list[Any], dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(1)

    def made(shape: Any) -> torch.Tensor:
        if isinstance(shape[1:2], tuple) and shape[1:] and isinstance(shape[1], tuple):
            made = torch.randint(0, shape[0], shape[1], generator=g)
            return made if len(shape[1]) < 4 else (made > 0).byte()  # a mask as models keep it
        return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)

    return [made(s) for s in shapes]


def held(function: Callable[..., Any], kernel: Any, given: list[torch.Tensor], target: str, tolerance: float = 1e-9) -> None:
    """Hold a kernel's results and gradients to a function's."""
    leaves = [x.requires_grad_() for x in given if x.is_floating_point()]
    want, got = function(*given), kernel(*given, target=target)
    want, got = (x if isinstance(x, tuple) else (x,) for x in (want, got))
    for w, g in zip(want, got, strict=True):
        assert w.shape == g.shape and w.dtype == g.dtype
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance)
    seeds = [torch.randn_like(w) for w in want]
    ours, theirs = (torch.autograd.grad(x, leaves, seeds, materialize_grads=True, allow_unused=True) for x in (got, want))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("function", "shapes"), CASES, ids=IDS)
def test_values_and_gradients_are_eagers(function: Callable[..., Any], shapes: list[Any]) -> None:
    held(function, kgen.kernel(function), tensors(shapes), "torch")


@pytest.mark.slow
@pytest.mark.parametrize(("function", "shapes"), CASES, ids=IDS)
def test_values_and_gradients_are_eagers_in_cpp(function: Callable[..., Any], shapes: list[Any]) -> None:
    held(function, kgen.kernel(function), tensors(shapes), "cpp")


@pytest.mark.parametrize(("function", "shapes"), CASES, ids=IDS)
def test_the_spec_of_a_function_is_read_again(function: Callable[..., Any], shapes: list[Any]) -> None:
    kernel = trace(function)
    assert kgen.loads(to_spec(kernel)).kernel.values == kernel.values


def test_a_remainder_is_told_at_the_call_with_both_sizes() -> None:
    kernel = kgen.kernel(dict(zip(IDS, (f for f, _ in CASES), strict=True))["fake_quantise"])
    with pytest.raises(kgen.KgenError, match="x has 130 along N_2.128: 130 is no multiple of 128"):
        kernel(torch.ones(2, 130))


def test_a_dim_that_is_split_takes_the_name_of_the_one_it_meets(tmp_path: Path) -> None:
    made = module(tmp_path, """
def rope(x: "T[..., S, N]", cos: "T[S, D]") -> "y: T[..., S, N]":
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos, b * cos), dim=-1)

def halves(x: "T[..., N]") -> "(a: T[..., H], b: T[..., H])":
    a, b = x.split(x.shape[-1] // 2, dim=-1)
    return a + 1, b

def sizes(x: "T[B, S, N]"):
    B, S, N = x.shape
    h = x.view(B, S, 4, N // 4)
    return h.reshape(B, S, N) / N

def exact(x: "T[..., N]"):
    a, _ = x.chunk(2, dim=-1)
    _, d = x.split([64, 64], dim=-1)
    return a + d
""")  # fmt: skip
    assert to_spec(trace(made.rope)).startswith("rope(x: T[..., S, 2*D], cos: T[S, D]) -> y: T[..., S, 2*D]")
    assert to_spec(trace(made.halves)).startswith("halves(x: T[..., 2*H]) -> (a: T[..., H], b: T[..., H])")
    assert to_spec(trace(made.sizes)) == "sizes(x: T[B, S, 4*N_2]) -> y: T[B, S, 4*N_2]\n\ny = x / (4 * N_2)\n"
    assert to_spec(trace(made.exact)).startswith("exact(x: T[..., 2*64]) -> y: T[..., 64]")


def test_kgens_own_words_name_a_dim_that_is_split(tmp_path: Path) -> None:
    made = module(tmp_path, """
def f(x: "T[..., N]") -> "y: T[..., N]":
    s = sum["N"](x)
    a, b = x.chunk(2, -1)
    return torch.cat((b, a), -1) * s[..., None] + index["N"] / N
""")  # fmt: skip
    (x,) = tensors([(3, 6)])
    want = x.roll(3, -1) * x.sum(-1, keepdim=True) + torch.arange(6) / 6
    torch.testing.assert_close(kgen.kernel(made.f)(x, target="torch"), want)


def test_a_result_may_have_a_literal_dim_of_its_own() -> None:
    """Two tensors joined: no parameter has the dim of two."""
    spec = "cat2(x: T[..., N], y: T[..., N]) -> (z: T[..., 2*N], s: T[...])\n\nz[2 = 0] = x * y\nz[2 = 1] = y\ns        = sum[N](x)\n"
    held(lambda x, y: (torch.cat((x * y, y), -1), x.sum(-1)), kgen.loads(spec), tensors([(3, 5), (3, 5)]), "torch")


# --------------------------------------------------------------------------------------------- what torch takes apart

DECOMPOSED = [
    ("F.glu(x, dim=-1)", lambda x, y: F.glu(x, dim=-1)),
    ("torch.logaddexp(x, y)", torch.logaddexp),
    ("x.sinc() + torch.special.entr(y.sigmoid())", lambda x, y: x.sinc() + torch.special.entr(y.sigmoid())),
    ("F.triplet_margin_loss(x, y, x * y)", lambda x, y: F.triplet_margin_loss(x, y, x * y)),
    ("F.poisson_nll_loss(x, y)", F.poisson_nll_loss),
    ("torch.fliplr(x) * y", lambda x, y: torch.fliplr(x) * y),
]


@pytest.mark.parametrize(
    ("text", "function"), [pytest.param(*case, marks=[pytest.mark.slow] * (k > 0), id=case[0]) for k, case in enumerate(DECOMPOSED)]
)
def test_what_has_no_row_is_read_through_its_decomposition(tmp_path: Path, text: str, function: Callable[..., Any]) -> None:
    used = ", ".join(f'{p}: "T[B, N]"' for p in ("x", "y") if p in text.replace("dim", "").replace("exp", ""))
    made = module(tmp_path, f"def f({used}):\n    return {text}\n")
    given = tensors([(4, 6), (4, 6)][: used.count(":")])
    held(made.f, kgen.kernel(made.f), given, "torch")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["F.gaussian_nll_loss(x, y, y * y)", "torch.nan_to_num(x) * y", "torch.cdist(x, y)", "torch.mm(x, y)", "torch.unique(x) * y"])
def test_what_cannot_be_read_is_refused_at_its_place(tmp_path: Path, text: str) -> None:
    made = module(tmp_path, f'def f(x: "T[N, N2]", y: "T[N, N2]"):\n    return {text}\n')
    with pytest.raises(kgen.KgenError, match="kgen does not know `") as caught:
        trace(made.f)
    assert caught.value.diagnostics[0].span is not None


def test_a_decomposition_has_torchs_dtype(tmp_path: Path) -> None:
    """It computes in a wider dtype than it gives."""
    made = module(tmp_path, 'def f(x: "T[B, V]", t: "i64[B]"):\n    return F.nll_loss(F.log_softmax(x, -1), t)\n')
    x, t = torch.randn(3, 5).bfloat16(), torch.tensor([0, 4, 2])
    assert kgen.kernel(made.f)(x, t, target="torch").dtype == made.f(x, t).dtype == torch.bfloat16


# --------------------------------------------------------------------------------------------- methods, types

METHODS = '''
from typing import Annotated
import torch
import torch.nn as nn
import torch.nn.functional as F
import kgen

Rows = Annotated[torch.Tensor, "T[..., N]"]

class RMSNorm(nn.Module):
    def __init__(self, n, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(n))
        self.eps = eps

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    @kgen.kernel
    def forward(self, x: Annotated[torch.Tensor, "T[..., N]"]) -> torch.Tensor:
        return self._norm(x.float()).type_as(x) * self.weight

class Gated(nn.Module):
    def __init__(self, n, groups=2):
        super().__init__()
        self.norm, self.act, self.groups = nn.LayerNorm(n), nn.SiLU(), groups
        self.bias = nn.Parameter(torch.rand(groups * n))

    @kgen.kernel
    def forward(self, x: "T[..., N]"):
        a, b = (x + self.bias).chunk(self.groups, dim=-1)
        return self.norm(self.act(a) * b)

    @kgen.kernel
    def wrong(self, x: "T[..., N]"):
        return x * self.missing

@kgen.kernel
def scaled(x: Rows, by: float = 2.0) -> Annotated[torch.Tensor, "y: T[..., N]"]:
    return x * by

@kgen.kernel
def both(x: Annotated[torch.Tensor, "T[..., N]"]) -> tuple[Annotated[torch.Tensor, "a: T[..., N]"], Annotated[torch.Tensor, "b: T[...]"]]:
    return x * 2, sum["N"](x)
'''


def test_a_methods_tensors_and_numbers_are_bound_at_each_call(tmp_path: Path) -> None:
    made = module(tmp_path, METHODS, "")
    plain, m, x = made.RMSNorm.forward.__wrapped__, made.RMSNorm(16), torch.randn(3, 16, requires_grad=True)

    def run(x: torch.Tensor) -> torch.Tensor:
        return m(x, target="torch")

    leaves = [x, m.weight]
    torch.testing.assert_close(run(x), plain(m, x))
    ours, theirs = (torch.autograd.grad(f.sin().sum(), leaves) for f in (run(x), plain(m, x)))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
    m.eps = 0.5
    with torch.no_grad():
        m.weight.mul_(2)
    torch.testing.assert_close(run(x), plain(m, x))
    assert made.RMSNorm(16)(x, target="torch").shape == x.shape
    (kernel,) = made.RMSNorm.forward.kernels
    assert kernel.to_spec().startswith("forward(x: T[..., N], eps: float, weight: T[N]) -> y: T[..., N]")
    half = x.detach().bfloat16()  # the weight stays in f32: another kernel
    assert run(half).dtype == plain(m, half).dtype == torch.float32 and len(made.RMSNorm.forward.kernels) == 2
    assert list(inspect.signature(m.forward).parameters) == ["x"]
    assert list(inspect.signature(made.RMSNorm.forward).parameters) == ["self", "x"]


def test_a_method_is_a_function_to_torch(tmp_path: Path) -> None:
    """Copies of a module, and torch.func."""
    made = module(tmp_path, METHODS, "")
    m, x = made.RMSNorm(16), torch.randn(3, 16)
    assert torch.equal(copy.deepcopy(m)(x, target="torch"), m(x, target="torch"))
    slope = torch.func.grad(lambda w: torch.func.functional_call(m, {"weight": w}, (x,), {"target": "torch"}).sum())(m.weight.detach())
    torch.testing.assert_close(slope, torch.autograd.grad(made.RMSNorm.forward.__wrapped__(m, x).sum(), m.weight)[0])


@pytest.mark.slow
def test_a_method_is_a_graph_break_to_torch_compile(tmp_path: Path) -> None:
    m, x = module(tmp_path, METHODS, "").RMSNorm(16), torch.randn(3, 16)
    torch.testing.assert_close(torch.compile(m, backend="eager")(x, target="torch"), m(x, target="torch"))


def test_a_methods_modules_are_read_and_its_integers_are_constants(tmp_path: Path) -> None:
    made = module(tmp_path, METHODS, "")
    m, x = made.Gated(8), torch.randn(5, 16)
    torch.testing.assert_close(m(x, target="torch"), made.Gated.forward.__wrapped__(m, x))
    assert made.Gated.forward.kernels[0].to_spec().startswith(
        "forward(x: T[..., 2*8], bias: T[2*8], norm_weight: T[8], norm_bias: T[8], norm_eps: float) -> y: T[..., 8]"
    )
    with pytest.raises(kgen.KgenError, match="there is no `missing` in this Gated"):
        m.wrong(x)


def test_types_that_checkers_accept(tmp_path: Path) -> None:
    made = module(tmp_path, METHODS, "")
    x = torch.randn(2, 3)
    assert made.scaled.to_spec() == "scaled(x: T[..., N], by: float = 2.0) -> y: T[..., N]\n\ny = x * by\n"
    assert torch.equal(made.scaled(x, target="torch"), made.scaled.__wrapped__(x))
    assert made.both.to_spec().startswith("both(x: T[..., N]) -> (a: T[..., N], b: T[...])")
    assert inspect.signature(made.scaled) == inspect.signature(made.scaled.__wrapped__)


@pytest.mark.slow
def test_checkers_see_the_functions_own_signature(tmp_path: Path) -> None:
    """mypy on the functions above, and ruff."""
    uses = (
        "reveal_type(scaled(torch.ones(3)))", "reveal_type(scaled.__wrapped__)", "reveal_type(RMSNorm(3).forward)",
        'reveal_type(scaled.source("triton"))', 'scaled("no")',
    )  # fmt: skip
    path = tmp_path / "typed.py"
    path.write_text(METHODS.replace('sum["N"](x)', "x.sum(-1)").replace('"T[..., N]"):', '"T[..., N]"):  # noqa: F722') + "\n".join(uses) + "\n")
    root = str(Path(kgen.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--ignore-missing-imports", "--follow-imports=silent", str(path)],
        capture_output=True, text=True, env={"PYTHONPATH": root, "PATH": "/usr/bin", "MYPYPATH": root}, cwd=tmp_path,
    )  # fmt: skip
    told = [line.split(": ", 1)[1] for line in done.stdout.splitlines() if ":" in line and "typed.py" in line]
    assert 'note: Revealed type is "torch._tensor.Tensor"' in told
    assert 'note: Revealed type is "def (x: torch._tensor.Tensor, by: float =) -> torch._tensor.Tensor"' in told
    assert 'note: Revealed type is "def (x: torch._tensor.Tensor) -> torch._tensor.Tensor"' in told
    assert 'note: Revealed type is "str"' in told
    assert any('incompatible type "str"; expected "Tensor"' in line for line in told)


def test_a_mask_with_an_axis_of_size_one_may_be_left_out(tmp_path: Path) -> None:
    made = module(tmp_path, """
def scores(s: "T[B, H, Q, K]", mask: "T[B, 1, Q, K] | None" = None):
    if mask is not None:
        s = s + mask
    return s.softmax(-1)
""")  # fmt: skip
    s, mask = tensors([(2, 3, 4, 5), (2, 1, 4, 5)])
    kernel = kgen.kernel(made.scores)
    for given in ((s,), (s, mask)):
        torch.testing.assert_close(kernel(*given, target="torch"), made.scores(*given))


def test_what_a_part_as_long_as_another_dim_lacks_is_nan() -> None:
    """Where torch raises: a table that has fewer rows than are asked for."""
    kernel = kgen.kernel(dict(zip(IDS, (f for f, _ in CASES), strict=True))["with_positions"])
    y = kernel(torch.ones(1, 4, 2), torch.ones(1, 3, 2), torch.ones(6, 2), target="torch")
    assert y[0].isnan().any(-1).tolist() == [False, False, False, True]


def test_what_is_written_in_place_has_no_other_name(tmp_path: Path) -> None:
    """What torch would show under another name is refused; a copy, and what a helper is given alone, may be written."""
    made = module(tmp_path, """
def twice(t):
    t.mul_(2)
    return t

def two_names(x: "T[N]"):
    y = x.clone()
    z = y
    y.add_(1)
    return z

def in_a_tuple(x: "T[N]"):
    h = x * 2
    both = (h, x + 1)
    h.mul_(2)
    return both[0]

def in_a_helper(x: "T[N]"):
    t = x + 1
    k = twice(t)
    return t + k

def of_the_caller(x: "T[N]"):
    return twice(x.view(x.shape))

def copies(x: "T[N]"):
    y, w = x.clone(), twice(x + 1)
    y.mul_(3).add_(1)
    return y + w
""")  # fmt: skip
    for f in (made.two_names, made.in_a_tuple, made.in_a_helper, made.of_the_caller):
        with pytest.raises(kgen.KgenError, match="writes in place"):
            trace(f)
    (x,) = tensors([(5,)])
    torch.testing.assert_close(kgen.kernel(made.copies)(x, target="torch"), made.copies(x.clone()))


@pytest.mark.usefixtures("built_quickly")
def test_a_modules_tensor_may_have_axes_of_size_one(tmp_path: Path) -> None:
    """Each of another shape makes a kernel of its own."""
    made = module(tmp_path, """
import kgen

class Snake(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.alpha = torch.nn.Parameter(torch.rand(shape, dtype=torch.float64) + 0.5)

    @kgen.kernel
    def forward(self, x: "T[B, C, N]"):
        return x + torch.sin(self.alpha * x).pow(2) / self.alpha
""")  # fmt: skip
    (x,) = tensors([(2, 3, 5)])
    for shape in ((1, 3, 1), (2, 3, 5), (1, 1, 5)):
        snake = made.Snake(shape)
        torch.testing.assert_close(snake(x), x + torch.sin(snake.alpha * x).pow(2) / snake.alpha)
    assert len(made.Snake.forward.kernels) == 3
