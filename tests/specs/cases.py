"""The bundled specs that reduce, each with arguments and the torch function that a user would compare it with.

`cases()` gives them to tests of the formulas (here) and of generated code (`check_case` on a target).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kgen
from kgen.runtime.arguments import default
from kgen.runtime.evaluate import Evaluator
from kgen.testing import checks
from kgen.testing.bounds import Analysis
from tests.conftest import ROOT

Arguments = dict[str, Any]
SIZES = (1, 2, 3, 31, 32, 33, 1023, 1024, 1025)
LARGE = (4096, 4097, 65537)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INF, NAN = math.inf, math.nan
SPECS = sorted(p.stem for p in (ROOT / "specs").glob("*.k"))


#: Specs whose passes over rows are those of another in this folder: to build them at -O3 as well is left to `-m slow`.
ALIKE = (
    "histogram", "ragged_mean", "segment_mean",  # what all of these need is built for tests/segments
    "add_rmsnorm", "causal_softmax", "cosine_similarity", "cross_entropy", "cross_entropy_dx", "groupnorm", "huber", "jsd", "kl_div",
    "l2_normalize", "log_softmax", "mse", "rmsnorm", "triplet_margin", "cumulative_mean", "logcumsumexp", "topk",
    "variance", "logsumexp", "min_p_mask", "top_p_mask",  # as layernorm, softmax and topk_mask
)  # fmt: skip


def built_as_its_like(spec: str, request: pytest.FixtureRequest) -> None:
    """Build a spec at -O0 for the test that asks, where one like it is built at -O3."""
    if spec in ALIKE and request.node.get_closest_marker("slow") is None:
        request.getfixturevalue("built_quickly")


def built(spec: str) -> str:
    """The dtype in which the default run compiles a spec that reduces: f32 for one half of them, bf16 for the other."""
    return ("f32", "bf16")[SPECS.index(spec) % 2]


def turns(spec: str) -> tuple[str, str]:
    """That dtype and one more: over all specs every dtype has its turn, f32 and f16 in one half, bf16 and f64 in the other."""
    return built(spec), {"f32": "f16", "bf16": "f64"}[built(spec)]


@lru_cache
def load(spec: str) -> kgen.Kernel:
    """The kernel of a bundled spec, parsed once."""
    return kgen.load(spec)


@dataclass(frozen=True)
class Case:
    """`arguments(n, make)` gives a kernel's arguments for rows of n elements, their tensors from `make(*shape)` (of any
    float dtype); `reference` gives torch's results as a tuple, from arguments with every default filled in.

    `special` says that special values may stand anywhere in the tensors (probabilities have a domain)."""

    spec: str
    arguments: Callable[[int, Callable[..., torch.Tensor]], Arguments]
    reference: Callable[..., tuple[torch.Tensor, ...]]
    special: bool = True

    def filled(self, given: Arguments) -> Arguments:
        params = load(self.spec).kernel.params
        return {p.name: given[p.name] if p.name in given else default(p) for p in params}


def random(dtype: torch.dtype, seed: int = 0) -> Callable[..., torch.Tensor]:
    """A maker of normal tensors."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def special(dtype: torch.dtype, seed: int = 0) -> Callable[..., torch.Tensor]:
    """A maker of tensors whose rows are what reductions get wrong, in turn: equal, infinite, NaN, masked, wide, offset."""
    plain = random(dtype, seed)

    def make(*shape: int) -> torch.Tensor:
        x = plain(*shape).reshape(-1, shape[-1])
        ends = torch.linspace(-6, 4, shape[-1], dtype=torch.float64)
        top = 6e4 if dtype == torch.float16 else 1e12
        kinds: list[Callable[[torch.Tensor], None]] = [
            lambda r: r.fill_(-INF),
            lambda r: r.fill_(INF),
            lambda r: r[len(r) // 2 :].fill_(NAN),
            lambda r: r.fill_(0.1),
            lambda r: r.copy_((r.double().sign() * 10**ends).clamp(-top, top)),
            lambda r: r[len(r) // 2 :].fill_(-INF),
            lambda r: r[-1:].fill_(INF),
            lambda r: r.fill_(0.0),
            lambda r: r.copy_(r.sign() + 100),
            lambda r: None,
            lambda r: r[:1].fill_(-INF),
        ]
        for k, row in enumerate(x):
            kinds[(k + seed) % len(kinds)](row)
        return x.reshape(shape)

    return make


ROWS = 11


def _targets(n: int) -> torch.Tensor:
    t = torch.arange(ROWS) * 7 % n
    t[3] = -100
    return t


def _greatest(x: torch.Tensor, k: int) -> torch.Tensor:
    """Which elements are the k greatest of their rows, ties by place."""
    order = x.argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(x, dtype=torch.bool).scatter(-1, order[..., :k], True)


def _greatest_in_order(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k greatest elements of each row and their places."""
    order = x.argsort(dim=-1, descending=True, stable=True)[..., :k]
    more = (0, k - order.shape[-1])
    return F.pad(x.gather(-1, order), more, value=-INF), F.pad(order, more, value=x.shape[-1])


def _nucleus(x: torch.Tensor, p: float) -> torch.Tensor:
    """Which elements are the most probable that have a probability of p together."""
    values, order = x.double().sort(dim=-1, descending=True, stable=True)
    before = torch.softmax(values, -1).cumsum(-1).roll(1, -1)
    before[..., 0] = 0
    kept = values.where(before < p, INF).amin(-1, keepdim=True)
    return x.double() >= kept


def _quantised(x: torch.Tensor, **_: Any) -> tuple[torch.Tensor, ...]:
    a = x.abs().amax(-1, keepdim=True)
    q = torch.where(a > 0, torch.clamp(torch.round(x / (a / 127)), -127, 127), 0.0)
    return q.nan_to_num(0).to(torch.int8), (a / 127)[..., 0]


def _quantised_in_groups(x: torch.Tensor, **_: Any) -> tuple[torch.Tensor, ...]:
    q, s = _quantised(x.view(len(x), -1, 128))
    return q.view(x.shape), s


def _cross_entropy(x: torch.Tensor, t: torch.Tensor, ignore: int, smoothing: float, z: float) -> tuple[torch.Tensor, ...]:
    loss = F.cross_entropy(x, t, reduction="none", ignore_index=ignore, label_smoothing=smoothing)
    return (loss + (torch.where(t == ignore, 0.0, z * torch.logsumexp(x, -1) ** 2) if z else 0),)


def _cross_entropy_dx(x: torch.Tensor, t: torch.Tensor, scale: float, ignore: int) -> tuple[torch.Tensor, ...]:
    with torch.enable_grad():
        given = x.detach().requires_grad_()
        loss = F.cross_entropy(given, t, reduction="none", ignore_index=ignore)
        (dx,) = torch.autograd.grad(loss.sum() * scale, given)
    return loss.detach(), dx


def _variance(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (torch.var(x, -1) if x.shape[-1] > 1 else torch.full_like(x[..., 0], NAN),)  # torch's own is that, and warns


def _jsd(p: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m = (p + q) / 2
    return (((torch.special.xlogy(p, p / m) + torch.special.xlogy(q, q / m)) / 2).nan_to_num(0).sum(-1),)


def _group_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> tuple[torch.Tensor, ...]:
    flat = x.reshape(x.shape[0], -1, x.shape[3])
    return (F.group_norm(flat, x.shape[1], w.flatten(), b.flatten(), eps).reshape(x.shape),)


def _rms(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], w, eps)


def _masked(s: torch.Tensor) -> torch.Tensor:
    return s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -INF)


def _segment_mean(x: torch.Tensor, ids: torch.Tensor, default: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (torch.stack([x[ids == k].mean(0) if bool((ids == k).any()) else default[k] for k in range(len(default))]),)


def _histogram(x: torch.Tensor, counts: torch.Tensor, low: float, width: float) -> tuple[torch.Tensor, ...]:
    at = torch.floor((x - low) / width).nan_to_num(0, posinf=-1)  # NaN as an integer is 0
    return (counts + torch.stack([(at == k).sum() for k in range(len(counts))]),)


def cases() -> list[Case]:
    """Every bundled spec that reduces.  Arguments have ROWS rows of n elements, or what comes nearest to that."""

    def x(n: int, make: Any) -> Arguments:
        return {"x": make(ROWS, n)}

    def xy(n: int, make: Any) -> Arguments:
        return {"x": make(ROWS, n), "y": make(ROWS, n)}

    def probabilities(a: str, b: str, log: bool) -> Callable[[int, Any], Arguments]:
        def arguments(n: int, make: Any) -> Arguments:
            p, q = (make(ROWS, n).double() for _ in "pq")
            p, q = p.softmax(-1), (q.log_softmax(-1) if log else q.softmax(-1))
            p[::2, ::3] = 0  # a probability of 0 adds 0
            return {a: p.to(make(1).dtype), b: q.to(make(1).dtype)}

        return arguments

    return [
        Case("topk_mask", lambda n, make: {"x": make(ROWS, n), "k": 5}, lambda x, k: (x.where(_greatest(x, k), -INF),)),
        Case("top_p_mask", lambda n, make: {"x": make(ROWS, n), "p": 0.9}, lambda x, p: (x.where(_nucleus(x, p), -INF),), special=False),
        Case("min_p_mask", lambda n, make: {"x": make(ROWS, n), "p": 0.05},
             lambda x, p: (x.where(torch.softmax(x, -1) >= p * torch.softmax(x, -1).amax(-1, keepdim=True), -INF),), special=False),
        Case("topk", x, lambda x: _greatest_in_order(x, 8)),
        Case("softmax", x, lambda x: (torch.softmax(x, -1),)),
        Case("log_softmax", x, lambda x: (torch.log_softmax(x, -1),)),
        Case("logsumexp", x, lambda x: (torch.logsumexp(x, -1),)),
        Case("causal_softmax", lambda n, make: {"s": make(2, min(n, 5), n)}, lambda s: (torch.softmax(_masked(s), -1),)),
        Case("layernorm", lambda n, make: {"x": make(ROWS, n), "w": random(make(1).dtype, 5)(n), "b": random(make(1).dtype, 6)(n)},
             lambda x, w, b, eps: (F.layer_norm(x, x.shape[-1:], w, b, eps),)),
        Case("rmsnorm", lambda n, make: {"x": make(ROWS, n), "w": random(make(1).dtype, 5)(n)}, lambda x, w, eps: (_rms(x, w, eps),)),
        Case("add_rmsnorm", lambda n, make: {"x": make(ROWS, n), "r": random(make(1).dtype, 4)(ROWS, n), "w": random(make(1).dtype, 5)(n)},
             lambda x, r, w, eps: (_rms(x + r, w, eps), x + r)),
        Case("groupnorm", lambda n, make: {"x": make(3, 2, 2, n), "w": random(make(1).dtype, 5)(2, 2), "b": random(make(1).dtype, 6)(2, 2)},
             _group_norm),
        Case("batchnorm_stats", lambda n, make: {"x": make(ROWS, 3, n)},
             lambda x: tuple(reversed(torch.var_mean(x, (0, 2), correction=0)))),
        Case("l2_normalize", x, lambda x, eps: (F.normalize(x, dim=-1, eps=eps),)),
        Case("cross_entropy", lambda n, make: {"x": make(ROWS, n), "t": _targets(n)}, _cross_entropy),
        Case("cross_entropy", lambda n, make: {"x": make(ROWS, n), "t": _targets(n), "smoothing": 0.1, "z": 1e-3}, _cross_entropy, special=False),
        Case("cross_entropy_dx", lambda n, make: {"x": make(ROWS, n), "t": _targets(n), "scale": 0.25}, _cross_entropy_dx,
             special=False),  # torch multiplies the softmax of rows that it ignores by 0, NaN and all
        Case("kl_div", probabilities("p", "q", True), lambda q, p: (F.kl_div(q, p, reduction="none").sum(-1),), special=False),
        Case("jsd", probabilities("p", "q", False), _jsd, special=False),
        Case("mse", xy, lambda x, y: (F.mse_loss(x, y),)),
        Case("huber", lambda n, make: {**xy(n, make), "delta": 0.7}, lambda x, y, delta: (F.huber_loss(x, y, delta=delta),)),
        Case("cosine_similarity", xy, lambda x, y, eps: (F.cosine_similarity(x, y, dim=-1, eps=eps),)),
        Case("triplet_margin", lambda n, make: {k: make(ROWS, n) for k in "apn"},
             lambda a, p, n, margin, eps: (F.triplet_margin_loss(a, p, n, margin, eps=eps),)),
        Case("argmax", x, lambda x: (torch.argmax(x, -1),)),
        Case("variance", x, _variance),
        Case("row_absmax_int8", x, _quantised),
        Case("sum_of_squares_cols", lambda n, make: {"x": make(ROWS, n).mT}, lambda x: ((x**2).sum(0),)),
        Case("group_int8", lambda n, make: {"x": make(3, 128 * max(1, n // 128))}, _quantised_in_groups),
        Case("causal_conv4", lambda n, make: {"x": make(2, 3, n), "w": random(make(1).dtype, 5)(3, 4), "b": random(make(1).dtype, 6)(3)},
             lambda x, w, b: (F.silu(F.conv1d(F.pad(x, (3, 0)), w[:, None], b, groups=3)),), special=False),
        Case("cumsum", x, lambda x: (x.cumsum(-1),)),
        Case("cumulative_mean", x, lambda x: (x.cumsum(-1) / torch.arange(1, x.shape[-1] + 1, dtype=x.dtype),)),
        Case("logcumsumexp", x, lambda x: (x.logcumsumexp(-1),)),
        Case("linear_recurrence", lambda n, make: {"x": make(2, n, 3), "g": make(2, n, 3)}, _gated, special=False),
        Case("segment_mean", lambda n, make: {"x": make(ROWS, n), "ids": torch.arange(ROWS) ** 2 % 7 - 1, "default": make(7, n)}, _segment_mean),
        Case("ragged_mean", lambda n, make: {"x": make(ROWS, n), "offsets": torch.tensor([0, 3, 3, 11])},
             lambda x, offsets: (torch.stack([x[a:b].sum(0) / max(b - a, 1) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]),)),
        Case("histogram", lambda n, make: {"x": make(n), "counts": torch.arange(7), "low": -1.7503, "width": 0.5}, _histogram),
        Case("frobenius", lambda n, make: {"x": make(2, 3, n)}, lambda x: (torch.linalg.vector_norm(x),)),
    ]  # fmt: skip


def _gated(x, g):
    """One step after the other, as a loop in Python has them."""
    h, a = torch.zeros_like(x[:, 0]), torch.sigmoid(g)
    every = []
    for k in range(x.shape[1]):
        h = a[:, k] * h + (1 - a[:, k]) * x[:, k]
        every.append(h)
    return (torch.stack(every, 1),)


def check_case(case: Case, given: Arguments, target: str) -> checks.Report:
    """Run a case on a target and hold it against the exact result and its derived bound: see `check_call`."""
    return check_call(load(case.spec), case.filled(given), target)


def check_call(kernel: kgen.Kernel, arguments: Arguments, target: str) -> checks.Report:
    """Call a kernel on a target and hold it against the exact result and its derived bound; fails with the first difference.

    `arguments` may lie on the CPU or on the target's device, with any strides.  The report says how many elements had no bound, and
    the largest fraction of its bound that an error took."""
    device, written = "cuda" if target in ("triton", "cuda") else "cpu", {r.state for r in kernel.kernel.results}
    moved = {k: a.to(device, copy=k in written) if isinstance(a, torch.Tensor) else a for k, a in arguments.items()}
    here = {k: a.cpu() if isinstance(a, torch.Tensor) else a for k, a in arguments.items()}
    returned = kernel(**moved, target=target)
    fresh = list(returned) if isinstance(returned, tuple) else [returned]
    got = [moved[r.state] if r.state else fresh.pop(0) for r in kernel.kernel.results]
    report = checks.Report(kernel.name, target)
    wanted = Analysis(kernel.kernel, here, "cpp" if target == "torch" else target).results()
    eager = Evaluator(kernel.kernel, here, "eager").run()
    for r, y, want, other in zip(kernel.kernel.results, got, wanted, eager, strict=True):
        message = checks.compare(y.cpu(), want, other, report)
        shapes = {k: list(a.shape) for k, a in arguments.items() if isinstance(a, torch.Tensor)}
        assert not message, f"{kernel.name}.{r.name} on {target} of {shapes}: {message}"
    return report
