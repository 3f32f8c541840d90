"""Programs as passes: as few as the dims allow, each behind what feeds it, and nothing read that a pass before has written."""

from __future__ import annotations

from dataclasses import replace

import pytest

import kgen
from kgen import pipeline
from kgen.check import check
from kgen.expand import expand, is_reduction
from kgen.ir import Broken, verify
from kgen.lower import lower
from kgen.monoids import Rides
from kgen.passes import Plan, Reduce, Scan, verified
from kgen.rewrite import rewrite
from kgen.schedule import schedule
from kgen.searches import SEARCHES
from kgen.syntax import parse
from kgen.types import DTYPES, f32
from tests.conftest import ROOT
from tests.programs import PROGRAMS

TEXTS = {**PROGRAMS, **{p.stem: p.read_text() for p in sorted((ROOT / "specs").glob("*.k"))}}


def plan(text: str) -> Plan:
    kernel = check(parse(text, "t"))
    return schedule(rewrite(lower(kernel, kernel.bindings()[0])))


#: passes, readings of a row in each (0: a map, or rows of one element), what is kept between passes
SHAPES = {
    "softmax": ([3], 0),
    "layernorm": ([3], 0),
    "logsumexp": ([2], 0),
    "cross_entropy": ([2], 0),
    "add_rmsnorm": ([2], 0),
    "mse": ([1], 0),
    "gelu": ([0], 0),
    "two directions": ([1, 2], 1),
    "loss and its mean": ([2, 1], 1),
    "embedding": ([0], 0),
    "pick of a sum": ([1, 0], 1),
    "picked elements are reduced": ([0, 2], 1),
    "in place with a row's norm": ([2], 0),
    "in place by another direction": ([1, 2], 1),
    "several levels": ([4], 0),
    "all and each": ([2], 0),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_program_takes_as_few_passes_as_it_can(name: str) -> None:
    made = plan(TEXTS[name])
    readings, kept = SHAPES[name]
    assert [p.readings if isinstance(p, Reduce) else 0 for p in made.passes] == readings
    assert len(made.workspaces) == kept


@pytest.mark.parametrize("name", TEXTS)
def test_a_pass_finds_what_it_reads(name: str) -> None:
    made = plan(TEXTS[name])
    ready = {t.name for t in made.program.tensors}
    overwritten: set[str] = set()
    stored = []
    for p in made.passes:
        assert {t.name for t in p.loads} <= ready - overwritten
        for s in p.stores:
            stored.append(s.result)
            ready.add(s.result)
            overwritten |= {s.state} if s.state else set()
    assert sorted(stored) == sorted({s.result for s in made.program.stores} | {w.name for w in made.workspaces})


@pytest.mark.parametrize("name", TEXTS)
def test_a_phase_computes_with_what_is_there(name: str) -> None:
    """Each let of a phase has its operands in the phase, or among what the row has from before."""
    for p in plan(TEXTS[name]).passes:
        if not isinstance(p, Reduce) or isinstance(p, Scan):  # of elements both
            continue
        row: set[str] = set()
        assert [f.element for f in p.phases] == [k % 2 == 1 for k in range(len(p.phases))]
        for f in p.phases:
            here = set(row) | {r.expr.operands[1].name for r in f.reductions if r.expr.name in SEARCHES}  # what a search tries
            for let in f.lets:
                numbers = let.expr.name == "cast" and not any(o.name in {x.name for x in p.lets} for o in let.expr.operands)
                gathered = let.expr.operands[:1] if let.expr.name == "gather" else ()
                assert numbers or all(o.name in here for o in let.expr.operands if o not in gathered)
                here.add(let.name)
            constants = {x.name for x in p.lets if x.expr.name == "cast" and x.expr.operands[0].name not in {y.name for y in p.lets}}
            amounts = {r.expr.operands[2].name for r in f.reductions if r.expr.name in SEARCHES} & constants
            assert all(o.name in here | amounts for r in f.reductions for o in r.expr.operands)
            assert all(s.ref in here for s in f.stores)
            row |= {*f.gives, *(r.name for r in f.reductions)}
            assert all(set(let.dims) & set(p.inner) for let in f.lets if f.element and let.expr.name not in ("cast",))


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_expanded_obeys_the_programs_rules(name: str) -> None:
    kernel = check(parse(TEXTS[name], "t"))
    made = verify(expand(rewrite(lower(kernel, kernel.bindings()[0]))))
    assert not any(let.expr.name in ("mean", "any", "all", "pick") for let in made.lets if is_reduction(let) or let.expr.name == "pick")


def test_a_state_is_written_behind_every_pass_that_reads_it() -> None:
    """Fuzzing found `x'` written by the pass that sums x, ahead of the one that raises the sum to the power of x."""
    text = "f(x: T[N, D], y: T[N, D]) -> (x': T[N, D], y': T[N, D])\nx' = x - x\ny' = sum[D](sum[N](x))^x"
    plan = schedule(rewrite(lower(check(parse(text)), {"T": f32})))
    written = next(k for k, p in enumerate(plan.passes) if any(s.state == "x" for s in p.stores))
    assert not any(t.name == "x" for p in plan.passes[written + 1 :] for t in p.loads)


@pytest.mark.parametrize("text", [
    # the maximum over the leading dims stands already where the one over C and them wants the gather in memory
    "f(x: T[..., N, C]) -> (e: bool[..., C], y: T32[..., C])\n\nz = pick[N](T32(mean[...](x)) + x, index[C])\ne = z == max[...](z)\n"
    "y = z - max[C, ...](z if e else 0.5)\n",
    # a gather from what a row's own reading found, which a later one wants in memory
    "f(x: T[..., N], t: T[N]) -> (s: T32[...], g: T32[...])\n\nv = pick[N](T32(t), argmax[N](x))\ns = sum[N](x * v)\ng = v - max[...](v)\n",
])  # fmt: skip
def test_what_is_kept_in_memory_later_is_computed_anew_before(text: str, built_quickly: None) -> None:
    """No pass reads what a later one writes, and the values are right."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from kgen.runtime.evaluate import Evaluator

    kernel = kgen.loads(text)
    for shape in ((8, 5, 3), (31, 7, 4)):
        torch.manual_seed(0)
        x = torch.randn(*shape)
        given = {"x": x, "t": torch.randn(shape[-1])} if "t: T" in text else {"x": x}
        exact = Evaluator(kernel.kernel, given, "exact").run()
        for got, want in zip(kernel(**given, target="cpp"), exact, strict=True):
            torch.testing.assert_close(got.double(), want.double(), rtol=1e-5, atol=1e-5)


def test_a_plan_that_reads_what_is_not_written_is_a_fault() -> None:
    made = next(p for p in map(plan, TEXTS.values()) if p.workspaces)
    with pytest.raises(Broken, match="which no pass before it writes"):
        verified(replace(made, passes=made.passes[::-1]))


def test_what_is_gathered_from_is_written_by_a_pass_before() -> None:
    """Of three gathers, each of what the one before it gives, none stands in a pass with another."""
    text = "f(w: T[N, D, C]) -> y: T[N, C]\n\ny = w[D = 0][C = index[C] - 1 else 0][N = index[N] + 1 else 0]\n"
    plan = schedule(lower(check(parse(text)), {"T": f32}))
    assert [len(p.gathers) for p in plan.passes if isinstance(p, Reduce)] == [1, 1, 1]


def test_what_a_gather_reads_is_not_written_in_its_pass() -> None:
    """x is written where another thread may yet read it."""
    text = "p(x: T[..., D, N]) -> x': T[..., D, N]\n\nx' = exp(0.1 * x)[D = index[D] - 1 else 0.0]\n"
    passes = pipeline.plan(kgen.loads(text).kernel, {"T": DTYPES["f32"]}, Rides.NONE).passes
    assert [[s.state for s in p.stores] for p in passes] == [[None], ["x"]]
    assert not any(t.name == "x" for t in passes[1].loads)


def test_a_cast_of_a_place_has_the_dims_of_what_stands_there() -> None:
    text = "p(l: f64[3, N], y: T[3, N]) -> x: T[N, 3]\n\nx = T((y if index[3] == 1 else l)[3 = 2 - index[3]])\n"
    kernel = kgen.loads(text).kernel
    for binding in kernel.bindings():
        assert pipeline.plan(kernel, binding, Rides.NONE).passes


def test_what_is_looked_up_is_kept_as_its_table_lies() -> None:
    """Neighbours of the table stay neighbours, whichever of its dims is looked up along, and the pass that writes them goes through them so."""
    texts = {
        "f(w: T[V, D], i: i64[S], b: i64[B + 1]) -> y: T[B, D]\n\n"
        "y = sum[S](w[V = i] if b[B + 1 = index[B]] <= index[S] and index[S] < b[B + 1 = index[B] + 1] else 0)\n": ("S", "D"),
        "f(w: T[V, D], i: i64[B, S]) -> y: T[B, S, D]\n\nx = w[V = i]\ny = x - mean[D](x)\n": ("B", "S", "D"),
        "f(w: T[M, D, V], i: i64[S]) -> y: T[M, D, S]\n\nx = w[V = i]\ny = x - mean[S, D](x)\n": ("M", "D", "S"),
        "f(w: T[..., V, D], i: i64[S]) -> y: T[..., S, D]\n\nx = w[V = i]\ny = x - mean[D](x)\n": ("...", "S", "D"),
    }
    for text, want in texts.items():
        made = pipeline.plan(kgen.loads(text).kernel, {"T": f32}, Rides.NONE)
        assert [w.dims for w in made.workspaces] == [want] and made.passes[0].dims == want, text


def test_what_is_kept_lies_as_what_is_read_with_it() -> None:
    """Whatever order an expression gives its dims; where tensors lie in several orders it says."""
    head, second = "f(x: T[B, S, C]) -> (y: T[B, S, C], z: T[B, S])\n\n", "\ny = x * cumsum[S, reversed](a)\nz = sum[C](a)\n"
    for first in ("a = cumsum[S](index[C] + x)", "a = cumsum[S]((index[C] + index[S]) * x)"):
        (kept,) = plan(head + first + second).workspaces
        assert kept.dims == ("B", "S", "C"), first
    (kept,) = plan("f(x: T[M, N], w: T[N, M]) -> y: T[M, N]\n\ny = w - cumsum[N, reversed](cumsum[N](w * x))\n").workspaces
    assert kept.dims == ("N", "M")
