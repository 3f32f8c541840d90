"""KernelBench level 1's tasks that kgen has a formula for: the data of each, and how they are timed.

A task is a spec under specs/kernelbench, the sizes of its dims, and the task's own torch formula of the spec's parameters, which eager
PyTorch runs and torch.compile compiles.  Inputs are f32, uniform random unless `inputs` says otherwise; a parameter that is viewed
(the channels of a group norm) is flattened by the formula, which costs nothing.  Task 92 is the exclusive sum that its text describes,
where KernelBench's code, until it was mended (issue 72), also left out a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from kgen.bench import libraries
from kgen.bench.timing import COPY, Found, Timing, copying, predicted, reason, spreads_ms, timed
from kgen.errors import KgenError
from kgen.types import resolve_named

NEAR = 1e-4  # how far from the task's own result: KernelBench's tolerance, of the element and of the largest
PIECE = 1 << 26  # elements compared at once
HEADS = ("task", "elements", "kgen ms", "eager ms", "compile ms", "MB", "GB/s", "of copy", "vs eager", "vs compile")


@dataclass(frozen=True)
class Task:
    """One task: its number and spec, the sizes of its dims, its formula of the spec's parameters by name, how the parameters are made
    (a number; "rows" of probabilities, "classes" of a dim, "signs", "mask") and what of a result is compared (itself, where None)."""

    number: int
    spec: str
    sizes: dict[str, int]
    formula: Callable[..., Any]
    inputs: dict[str, Any] = field(default_factory=dict)
    compared: Callable[[dict[str, Any], Any], Any] | None = None

    @property
    def name(self) -> str:
        return f"kernelbench/{self.spec}"


def _tanh_gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def _group_norm(x: Any, w: Any, b: Any) -> Any:
    return F.group_norm(x.flatten(1, 2), x.shape[1], w.flatten(), b.flatten(), 1e-5)


def _triplet(a: Any, p: Any, n: Any) -> Any:
    return F.triplet_margin_loss(a, p, n, margin=1.0)


def _before(x: Any) -> Any:
    return torch.cumsum(torch.cat((torch.zeros_like(x[:, :1]), x), dim=1)[:, :-1], dim=1)


def _there(given: dict[str, Any], index: Any) -> Any:
    """The elements that indices along dim 1 point to: of equals, any is right."""
    return given["x"].gather(1, index.reshape(given["x"].shape[0], 1, -1))


WIDE = {"M": 4096, "N": 393216}
IMAGES = {"B": 112, "C": 64, "H": 512, "W": 512}
CUBE = {"B": 128, "M": 4096, "N": 4095}
SQUARE = {"M": 32768, "N": 32768}

TASKS: tuple[Task, ...] = (
    Task(5, "5_matrix_scalar", {"M": 65536, "N": 16384}, lambda a, s: a * s, {"s": 3.14}),
    Task(12, "12_diagonal_matmul", {"N": 4096, "M": 4096}, lambda a, b: a.unsqueeze(1) * b),
    Task(19, "19_relu", WIDE, lambda x: torch.relu(x)),
    Task(20, "20_leaky_relu", WIDE, lambda x: F.leaky_relu(x, 0.01)),
    Task(21, "21_sigmoid", WIDE, lambda x: torch.sigmoid(x)),
    Task(22, "22_tanh", WIDE, lambda x: torch.tanh(x)),
    Task(23, "23_softmax", WIDE, lambda x: torch.softmax(x, 1)),
    Task(24, "24_log_softmax", WIDE, lambda x: torch.log_softmax(x, 1)),
    Task(25, "25_swish", WIDE, lambda x: x * torch.sigmoid(x)),
    Task(26, "26_gelu", WIDE, lambda x: F.gelu(x)),
    Task(27, "27_selu", WIDE, lambda x: torch.selu(x)),
    Task(28, "28_hardsigmoid", WIDE, lambda x: F.hardsigmoid(x)),
    Task(29, "29_softplus", WIDE, lambda x: F.softplus(x)),
    Task(30, "30_softsign", WIDE, lambda x: x / (1 + torch.abs(x))),
    Task(31, "31_elu", WIDE, lambda x: F.elu(x, 1.0)),
    Task(32, "32_hardtanh", WIDE, lambda x: F.hardtanh(x, -1.0, 1.0)),
    Task(33, "33_batch_norm", {"B": 64, "C": 64, "H": 512, "W": 512}, lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5)),
    Task(34, "34_instance_norm", IMAGES, lambda x: F.instance_norm(x, eps=1e-5)),
    Task(35, "35_group_norm", {"B": 112, "G": 8, "C": 8, "H": 512, "W": 512}, _group_norm),
    Task(36, "36_rms_norm", IMAGES, lambda x: x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5)),
    Task(37, "37_frobenius_norm", IMAGES, lambda x: x / torch.norm(x, p="fro")),
    Task(38, "38_l1_norm", {"M": 32768, "N": 65535}, lambda x: x / torch.mean(torch.abs(x), dim=1, keepdim=True)),
    Task(39, "39_l2_norm", {"M": 32768, "N": 65535}, lambda x: x / torch.norm(x, p=2, dim=1, keepdim=True)),
    Task(40, "40_layer_norm", {"B": 16, "C": 64, "H": 256, "W": 256}, lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5)),
    Task(41, "41_max_pool1d", {"...": 64 * 192, "N": 65536}, lambda x: F.max_pool1d(x, 8, 1, 4, 3)),
    Task(42, "42_max_pool2d", {"...": 32 * 64, "H": 512, "W": 512}, lambda x: F.max_pool2d(x, 4, 1, 1)),
    Task(43, "43_max_pool3d", {"...": 16 * 32, "D": 128, "H": 128, "W": 128}, lambda x: F.max_pool3d(x, 3, 2, 1, 3)),
    Task(44, "44_avg_pool1d", {"...": 64 * 128, "N": 65536}, lambda x: F.avg_pool1d(x, 8, 1, 4)),
    Task(45, "45_avg_pool2d", {"...": 16 * 64, "H": 2048, "W": 2048}, lambda x: F.avg_pool2d(x, 11)),
    Task(46, "46_avg_pool3d", {"...": 16 * 32, "D": 128, "H": 128, "W": 256}, lambda x: F.avg_pool3d(x, 3, 2, 1)),
    Task(47, "47_sum", CUBE, lambda x: torch.sum(x, dim=1, keepdim=True)),
    Task(48, "48_mean", CUBE, lambda x: torch.mean(x, dim=1)),
    Task(49, "49_max", CUBE, lambda x: torch.max(x, dim=1)[0]),
    Task(51, "51_argmax", CUBE, lambda x: torch.argmax(x, dim=1), compared=_there),
    Task(52, "52_argmin", CUBE, lambda x: torch.argmin(x, dim=1), compared=_there),
    Task(53, "53_min", CUBE, lambda x: torch.min(x, dim=1)[0]),
    Task(88, "88_gelu_tanh", {"M": 8192, "N": 8192}, _tanh_gelu),
    Task(89, "89_cumsum", SQUARE, lambda x: torch.cumsum(x, dim=1)),
    Task(90, "90_cumprod", SQUARE, lambda x: torch.cumprod(x, dim=1)),
    Task(91, "91_reverse_cumsum", SQUARE, lambda x: torch.cumsum(x.flip(1), dim=1).flip(1)),
    Task(92, "92_exclusive_cumsum", SQUARE, _before),
    Task(93, "93_masked_cumsum", SQUARE, lambda x, mask: torch.cumsum(x * mask, dim=1), {"mask": "mask"}),
    Task(94, "94_mse", SQUARE, lambda p, t: torch.mean((p - t) ** 2)),
    Task(95, "95_cross_entropy", {"M": 32768, "V": 4096}, lambda x, t: F.cross_entropy(x, t), {"t": "classes V"}),
    Task(96, "96_smooth_l1", SQUARE, lambda p, t: F.smooth_l1_loss(p, t)),
    Task(
        98, "98_kl_div", {"M": 16384, "N": 16384}, lambda p, t: F.kl_div(torch.log(p), t, reduction="batchmean"), {"p": "rows", "t": "rows"}
    ),
    Task(99, "99_triplet_margin", {"M": 32768, "N": 8192}, _triplet),
    Task(100, "100_hinge", SQUARE, lambda p, t: torch.mean(torch.clamp(1 - p * t, min=0)), {"t": "signs"}),
)


def chosen(numbers: str) -> list[Task]:
    """The tasks of a list such as "23,33-36" or "all".  Raises `KgenError` for one that is not here."""
    if numbers == "all":
        return list(TASKS)
    wanted: list[int] = []
    for part in numbers.split(","):
        low, _, high = part.strip().partition("-")
        if not low.isdigit() or high and not high.isdigit() or len(part) > 9:
            raise KgenError(f"{part!r} is not a KernelBench task", help="write 23, or 19-32, or all")
        span = [t.number for t in TASKS if int(low) <= t.number <= int(high or low)]
        if not span:
            raise KgenError(f"there is no KernelBench task {part} here", help=f"tasks are {', '.join(str(t.number) for t in TASKS)}")
        wanted += span
    return [t for t in TASKS if t.number in wanted]


def sizes(task: Task, scale: Fraction) -> dict[str, int]:
    """The task's sizes with `scale` times its elements, or as near as halving its largest dims comes from above."""
    found = dict(task.sizes)
    most = math.prod(found.values())
    while math.prod(found.values()) > scale * most and max(found.values()) > 2:
        d = max(found, key=lambda d: found[d])
        found[d] = max(2, found[d] // 2)
    return found


def inputs(task: Task, kernel: Any, scale: Fraction, device: str, dtype: str = "f32") -> dict[str, Any]:
    """The task's arguments for the kernel of its spec, those without a default of the spec's."""
    extents = sizes(task, scale)
    given: dict[str, Any] = {}
    for p in kernel.params:
        how = str(task.inputs.get(p.name, ""))
        if not p.is_tensor:
            if p.name in task.inputs:
                given[p.name] = task.inputs[p.name]
            continue
        shape = [extents[d] for d in p.dims]
        stored = getattr(torch, resolve_named(p.dtype, dict.fromkeys(kernel.variables, dtype)).torch)
        if how.startswith("classes"):
            given[p.name] = torch.randint(0, extents[how.split()[1]], shape, device=device)
            continue
        if how == "mask":
            given[p.name] = torch.randint(0, 2, shape, device=device).bool()
            continue
        made = torch.rand(shape, device=device)
        if how == "rows":
            made = torch.softmax(made, -1)
        elif how == "signs":
            made = torch.where(made < 0.5, -1.0, 1.0)
        given[p.name] = made.to(stored)
    return given


def refuse(task: Task, given: dict[str, Any], got: Any, want: Any, target: str) -> None:
    """Raise `KgenError` where a result is not the task's."""
    if task.compared is not None:
        got, want = task.compared(given, got), task.compared(given, want)
    x, y = got.reshape(-1), want.reshape(-1)
    if x.numel() != y.numel() or x.dtype != y.dtype:
        raise KgenError(f"{task.name}: {target} gives {x.numel():,} x {x.dtype}, the task {y.numel():,} x {y.dtype}")
    scale = max((float(y[k : k + PIECE].abs().max()) for k in range(0, y.numel(), PIECE)), default=0.0)
    for k in range(0, x.numel(), PIECE):
        if not torch.allclose(x[k : k + PIECE], y[k : k + PIECE], rtol=NEAR, atol=NEAR * scale, equal_nan=True):
            raise KgenError(f"{task.name}: {target} and the task's own formula differ", help=f"`kgen check {task.name}` says more")


def time_task(task: Task, targets: Sequence[str], peers: Sequence[str], device: str, scale: Fraction = Fraction(1)) -> Found:
    """Time one task: the spec as `Kernel.__call__` runs it ("kgen") and on each of `targets`, and the task's formula under the
    `peers` ("eager", "compile").  Results are compared with the formula's first."""
    found = Found()
    try:
        _time(task, found, targets, peers, device, scale)
    except Exception as error:  # too little memory, mostly
        found.wrong["task"] = error.render() if isinstance(error, KgenError) else f"{task.name}: {reason(error)}"
    return found


@torch.no_grad()
def _time(task: Task, found: Found, targets: Sequence[str], peers: Sequence[str], device: str, scale: Fraction) -> None:
    """Time a task's kernel (`kgen` and each of `targets`) beside the peers, inputs made `scale` as large, into `found`: what raises
    or computes something else than the task's formula is told there, and not timed."""
    from kgen.runtime.kernel import load

    kernel = load(task.name)
    given = inputs(task, kernel.kernel, scale, device)
    eager = partial(task.formula, **given)
    want, eager_first = timed(eager, device)
    runs: dict[str, tuple[Callable[[], Any], float]] = {}
    for name in ("kgen", *targets):
        call = partial(kernel, **given) if name == "kgen" else partial(kernel, **given, target=name)
        try:
            got, first = timed(call, device)
            refuse(task, given, got, want, name)
            runs[name] = call, first
        except Exception as error:
            found.wrong[name] = error.render() if isinstance(error, KgenError) else f"{task.name}: {name}: {reason(error)}"
        got = None
    moved = sum(t.numel() * t.element_size() for t in (*given.values(), want) if isinstance(t, torch.Tensor))
    want = None
    if "eager" in peers:
        runs["eager"] = eager, eager_first
    if "compile" in peers:
        compiled = partial(libraries.compiled(task.formula), **given)
        try:
            runs["compile"] = compiled, timed(compiled, device)[1]
        except Exception as error:
            found.left_out["compile"] = reason(error)
    spreads = spreads_ms({what: call for what, (call, _) in runs.items()} | {COPY: copying(moved, device)}, device)
    copy = spreads.pop(COPY)[0]
    largest = max(t.numel() for t in given.values() if isinstance(t, torch.Tensor))
    machine = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    counted = predicted(kernel.kernel, "f32")
    for what, (ms, low, high) in spreads.items():
        ratios = {f"vs {p}": spreads[p][0] / ms for p in peers if p in spreads}
        figures = (what, ms, moved, copy, runs[what][1], low, high, machine)
        found.rows.append(Timing(task.name, "f32", largest, 0, *figures, ratios=ratios, predicted=counted))


def line(task: Task, rows: Sequence[Timing], targets: Sequence[str]) -> tuple[str, ...]:
    """A task's rows as one line under `heads`."""
    by = {r.what: r for r in rows}
    ours = by.get("kgen")

    def ms(what: str) -> str:
        return f"{by[what].ms:.4g}" if what in by else "-"

    ratios = [ours.ratios.get(f"vs {p}") if ours else None for p in ("eager", "compile")]
    any_row = rows[0] if rows else None
    figures = (f"{ours.bytes / ours.ms * 1e-6:.4g}", f"{ours.copy / ours.ms:.3f}") if ours else ("-", "-")
    return (task.spec, f"{any_row.elements:,}" if any_row else "-", ms("kgen"), *map(ms, targets), ms("eager"), ms("compile"),
            f"{any_row.bytes * 1e-6:.4g}" if any_row else "-", *figures, *("-" if r is None else f"{r:.2f}" for r in ratios))  # fmt: skip


def heads(targets: Sequence[str]) -> tuple[str, ...]:
    return (*HEADS[:3], *(f"{t} ms" for t in targets), *HEADS[3:])


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """The geometric means of what kgen takes of the peers' time, and the worst task against torch.compile."""
    said = []
    for peer in ("eager", "compile"):
        ratios = {r["kernel"]: r["ratios"][f"vs {peer}"] for r in rows if r["what"] == "kgen" and f"vs {peer}" in r["ratios"]}
        if ratios:
            mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
            least = min(ratios, key=lambda k: ratios[k])
            behind = sum(1 for r in ratios.values() if r < 0.97)
            said.append(
                f"{peer} / kgen: geometric mean {mean:.2f} of {len(ratios)} tasks, least {ratios[least]:.2f} ({least}), {behind} below 0.97"
            )
    return "\n".join(said)
