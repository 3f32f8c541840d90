"""Sources that only a GPU would compile, compiled without one: every program of the tests, forward and backward, in the variants that
calls of several sizes, strides and dtypes launch, through NVRTC and through Triton as a call does it."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import kgen
from kgen import grad
from kgen.backends import launches
from kgen.check import Kernel, check
from kgen.errors import KgenError
from kgen.runtime import driver, nvrtc, rows
from kgen.syntax import parse
from kgen.testing import cases, fuzz, textual
from kgen.types import ELLIPSIS, resolve_named
from tests.compiled import TARGETS, compile_call, planned
from tests.conftest import GOLDEN, ROOT
from tests.cuda.test_cuda_source import TRICKY, every_operator
from tests.grad_cases import FORMULAS
from tests.programs import PROGRAMS
from tests.specs.cases import ALIKE
from tests.triton.test_triton_rows import MORE

SPECS = {p.stem: p.read_text() for p in sorted((ROOT / "specs").glob("*.k"))}
BENCH = {f"kernelbench/{p.stem}": p.read_text() for p in sorted((ROOT / "specs" / "kernelbench").glob("*.k"))}
GOLDENS = {p.stem: p.read_text() for p in sorted(GOLDEN.glob("*/*.k")) if p.parent.name != "backward"}
FUZZED = {p.stem: p.read_text() for p in sorted((ROOT / "tests" / "fuzzed").glob("*.k"))}
HOSTILE = {f"tricky {n}": x for n, x in TRICKY.items()} | {f"more {n}": x for n, x in MORE.items()}
TEXTS = {**SPECS, **PROGRAMS, **GOLDENS, **FUZZED, **HOSTILE}
DTYPES = ("bf16", "f32", "f16", "f64")
#: Specs whose kernels are those of another: of scans.
LIKE_CUMSUM = ("cumulative_mean", "linear_recurrence", "logcumsumexp")
#: Programs that take a compiler more than three seconds, of passes that others have one by one.
LONG = ("places", "agrees-a-place-of-all-before-a-scan")


@pytest.fixture(autouse=True)
def _optimised_little(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC spends most of its time on making code quicker, of which nothing is looked at here; `-m slow` has it do so."""
    if request.node.get_closest_marker("slow") is None and driver.available() and int(driver.version().split(".")[0]) >= 13:
        monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "--Ofast-compile=mid"))


def kernel(text: str) -> Kernel:
    return check(parse(text, "<text>"))


def derived(text: str) -> list[Kernel]:
    """A kernel's backward, and the forward that saves for it where that is another; none where it has no derivative."""
    first = kernel(text)
    try:
        made = grad.backward(first)
    except KgenError:
        return []
    return [made.kernel] if made.forward is first else [made.kernel, made.forward]


def drawn(k: Kernel, place: int, dtypes: tuple[str, ...] = DTYPES) -> dict[str, Any]:
    """Arguments of random shapes and strides, of the dtype whose turn it is; nothing is empty."""
    wanted = dtypes[place % len(dtypes)]
    for number in range(place, place + 400):
        draw = cases.Draw(k, 0, number)
        if draw.batch.count(0) or 0 in draw.named.values() or k.variables and draw.binding[k.variables[0]] != wanted:
            continue
        return draw.arguments()
    raise AssertionError(f"no case of {k.name} is of {wanted}")


def build(k: Kernel, given: dict[str, Any], targets: tuple[str, ...] = TARGETS) -> None:
    compile_call(kgen.Kernel(k), given, targets)


def turn(name: str) -> int:
    return [*TEXTS, *BENCH, *FORMULAS].index(name)




def rare(name: str) -> bool:
    """Whether only `-m slow` compiles a forward: what takes long; of what fuzzing found, all but the forwards that broke CUDA's sources; of all else three
    quarters."""
    if name in LONG:
        return True
    if name in FUZZED:
        return name.startswith("gradients_agree") or "\n# target: cuda\n" not in FUZZED[name]
    return turn(name) % 4 > 0 or name in LIKE_CUMSUM


RARE = {n for n in TEXTS if rare(n)}
FORWARDS = [pytest.param(n, marks=pytest.mark.slow if n in RARE else ()) for n in TEXTS]


@pytest.mark.parametrize("name", FORWARDS)
def test_forwards_compile(name: str) -> None:
    """Through NVRTC and, but for specs whose passes are another's, through Triton, which takes six times as long.
    `test_everything_compiles_in_every_dtype` has all."""
    k = kernel(TEXTS[name])
    if name in SPECS:
        both = name not in ALIKE
    else:
        both = name in {**PROGRAMS, **GOLDENS}
    build(k, drawn(k, turn(name)), TARGETS if both else ("cuda",))


@pytest.mark.parametrize("name", [n if turn(n) % 4 == 1 and n not in LIKE_CUMSUM else pytest.param(n, marks=pytest.mark.slow) for n in SPECS])
def test_backwards_compile(name: str) -> None:
    """f64 takes either compiler twice as long: it has its turn half as often as it has among forwards.  Through Triton go those whose
    forwards do not.  By default every fourth goes, through both."""
    if not (found := derived(SPECS[name])):
        return
    made = found[0]
    build(made, drawn(made, turn(name) + 1, (*DTYPES[:3], *DTYPES[:3], "f64")), TARGETS if turn(name) % 2 and name not in ALIKE else ("cuda",))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TEXTS, *BENCH, *FORMULAS])
def test_everything_compiles_in_every_dtype(name: str) -> None:
    text = {**TEXTS, **BENCH, **FORMULAS}[name]
    for k in (kernel(text), *derived(text)):
        for place in range(12):
            build(k, drawn(k, place))


@pytest.mark.parametrize("dtype", ["f32", pytest.param("f64", marks=pytest.mark.slow)])
def test_every_operator_compiles(dtype: str) -> None:
    k = kernel(every_operator())
    x = torch.ones(3, dtype=getattr(torch, {"f32": "float32", "f64": "float64"}[dtype]))
    build(k, {"x": x, "w": x}, ("cuda",))  # Triton's are in tests/triton


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_random_programs_with_awkward_names_compile(seed: int, request: pytest.FixtureRequest) -> None:
    for number in range(200 if request.config.getoption("--fuzz") else 1):
        first = kernel(fuzz.program_of(seed, number).text)
        k, _ = textual.renamed(first, random.Random(number))
        build(k, drawn(k, number), TARGETS if any(p.is_tensor for p in k.params) else ("cuda",))  # a Triton file makes tensors on a GPU


# ---------------------------------------------------------------------- every way of walking


def memory(k: Kernel, dtype: str, sizes: dict[str, int], batch: tuple[int, ...], turned: bool = False) -> dict[str, Any]:
    """Arguments that nobody reads: dense, or with their last two dims exchanged in memory."""
    given: dict[str, Any] = {}
    for p in k.params:
        if not p.is_tensor:
            given[p.name] = 1
            continue
        shape = [n for d in p.dims or () for n in (batch if d == ELLIPSIS else (sizes[d],))]
        stored = getattr(torch, resolve_named(p.dtype, dict.fromkeys(k.variables, dtype)).torch)
        given[p.name] = torch.empty(shape[:-2] + shape[-2:][::-1], dtype=stored).mT if turned and len(shape) > 1 else torch.empty(shape, dtype=stored)
    return given


#: Rows and their number that lead to each kind of launch.
ROWS = {
    "a warp": (300, 40),
    "a block": (4096, 40),
    "shared memory": (40_000, 40),
    "edges in shared memory": (4097, 40),
    "edges in much shared memory": (40_001, 40),
    "a cluster": (200_000, 40),
    "a large cluster": (500_000, 8),
    "turns in shared memory": (2_000_000, 40),
    "a loop": (2_000_000, 4300),
    "split": (2_000_000, 3),
    "few elements": (3, 5),
    "across": (5000, 300),
    "across in shared memory": (1000, 300),
}


#: Where Triton's three kernels over rows are launched, and across them.
TRITONS = ("a warp", "a loop", "split", "across")


@pytest.mark.parametrize("way", ROWS)
@pytest.mark.parametrize(
    ("name", "dtype"), [("softmax", "bf16"), *(pytest.param(n, d, marks=pytest.mark.slow) for n in ("softmax", "layernorm", "logsumexp") for d in DTYPES)]
)
def test_every_way_to_walk_rows_compiles(name: str, dtype: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    length, count = ROWS[way]
    if way in ("a loop", "split"):  # as longer rows, of which so many take more memory than there is
        monkeypatch.setattr(launches, "RULES", {key: tuple(r for r in own if r.where != "cached") for key, own in launches.RULES.items()})
        rows.cached.cache_clear()
    k = kernel(SPECS[name])
    given = memory(k, dtype, {"N": length}, (count,), way.startswith("across"))
    build(k, given, TARGETS if way in TRITONS or (name, dtype) != ("softmax", "bf16") else ("cuda",))
    if (name, dtype) == ("softmax", "bf16"):
        walk = [e[e.index("Walk<") + 5 : -1].split(", ") for e in planned(kgen.Kernel(k), given)]  # threads, blocks, team, across, vectors, ..., keep, cluster, step
        across, segments, keep, cluster, step = ([w[at] for w in walk] for at in (3, 9, 10, 11, 12))
        assert (set(across) == {"true"}) == way.startswith("across")
        assert (set(cluster) == {"true"}) == ("cluster" in way or "turns" in way)
        assert (set(keep) == {"2"}) == ("shared" in way or "cluster" in way)
        assert (len(set(step)) > 1) == (way in ("split", "across") or "turns" in way)
        assert (set(segments) == {"true"}) == (way in ("a loop", "split", "across"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float64, marks=pytest.mark.slow), pytest.param(torch.int8, marks=pytest.mark.slow)])
def test_every_way_to_walk_a_map_compiles(dtype: torch.dtype) -> None:
    """Dense, one by one, broadcast along each dim, of many dims, and with offsets beyond 32 bits."""
    declared = "i8" if dtype == torch.int8 else "T"
    k = kernel(f"m(x: {declared}[...]) -> y: {declared}[...]\ny = x * 2\n")
    small, far = torch.empty(4, 6, 64, dtype=dtype), torch.empty(2**32 + 4096, dtype=dtype)
    for x in (
        small, small[..., 1:], small.mT, small[..., ::2], small[:, :1].expand(4, 6, 64), small[..., :1].expand(4, 6, 64),
        far.as_strided((3, 4, 8), (2**31 - 8, 16, 1)), far.as_strided((3, 4, 5), (2**31 - 8, 7, 3)),
        torch.empty(2, 3, 2, 3, 2, 3, 4, dtype=dtype).permute(6, 5, 4, 3, 2, 1, 0),
    ):  # fmt: skip
        build(k, {"x": x})
