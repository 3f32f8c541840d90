"""Compiling takes time in proportion to the program, and what would grow beyond the budget is refused at its place."""

from __future__ import annotations

import cProfile
import pstats
import re
from collections.abc import Callable
from typing import Any

import pytest

from kgen import grad
from kgen.backends import backend
from kgen.check import Kernel, check
from kgen.errors import KgenError, TooLong
from kgen.ir import MAX_OPERATIONS
from kgen.lower import lower
from kgen.monoids import Rides
from kgen.passes import Reduce
from kgen.rewrite import rewrite
from kgen.schedule import schedule
from kgen.syntax import parse

TARGETS = ("triton", "cuda", "cpp")
HEAD = "f(x: T[..., N]) -> y: T[..., N]\n\n"


def kernel(text: str) -> Kernel:
    return check(parse(text, "f.k"))


def nested(n: int) -> str:
    return f"{HEAD}y = {'softmax[N](' * n}x{')' * n}\n"


def lines(n: int, line: Callable[[int], str], end: str) -> str:
    return HEAD + "".join(f"a{i + 1} = {line(i)}\n" for i in range(n)) + f"y = {end}\n"


#: Texts that are `n` times something: a chain, reductions side by side, many uses of one value, values of a row, numbers, picks, tensors.
GROWING: dict[str, tuple[int, Callable[[int], str]]] = {
    "chain": (20, lambda n: lines(n, lambda i: f"a{i} * x + 1.5" if i else "x", f"a{n}")),
    "reductions": (6, lambda n: lines(n, lambda i: f"x * {i + 1} - sum[N](x * {i + 2})", " + ".join(f"a{i + 1}" for i in range(n)))),
    "uses": (10, lambda n: lines(n, lambda i: f"relu(x - {i}.5)", " + ".join(f"a{i + 1}" for i in range(n)))),
    "row values": (15, lambda n: lines(n, lambda i: f"a{i} * 1.5 + a{i}" if i else "sum[N](x)", f"x * a{n} + sum[N](x * a{n})")),
    "picks": (8, lambda n: f"f(x: T[..., N], {', '.join(f't{i}: i64[...]' for i in range(n))}) -> y: T[...]\n\n"
              f"y = {' + '.join(f'pick[N](exp(x), t{i})' for i in range(n))}\n"),
    "tensors": (6, lambda n: f"f({', '.join(f'x{i}: T[..., N]' for i in range(n))}) -> ({', '.join(f'y{i}: T[..., N]' for i in range(n))})\n\n"
                + "".join(f"y{i} = x{i} * x{(i + 1) % n}\n" for i in range(n))),
}  # fmt: skip


def calls(work: Callable[[], Any]) -> tuple[int, Any]:
    """How many functions a piece of work calls: its time, apart from the machine."""
    profile = cProfile.Profile()
    made = profile.runcall(work)
    return pstats.Stats(profile).total_calls, made  # type: ignore[attr-defined]


def work(text: str) -> dict[str, int]:
    """The calls that each step takes, for a kernel and, on one target, its backward."""
    found = {}
    found["check"], k = calls(lambda: kernel(text))
    found["backward"], made = calls(lambda: grad.backward(k))
    for name, one in (("forward", k), ("derived", made.kernel)):
        for target in TARGETS if one is k else ("cuda",):
            found[f"{name} {target}"], _ = calls(lambda one=one, target=target: backend(target).render(one))
    return found


@pytest.mark.parametrize("name", GROWING)
def test_time_grows_as_the_program_does(name: str) -> None:
    n, text = GROWING[name]
    work(text(2))  # templates and tables are read once
    half, whole = work(text(n)), work(text(2 * n))
    assert {step: ratio for step in half if (ratio := whole[step] / half[step]) > 2.3} == {}


def test_what_the_readings_of_rows_make_too_long_is_refused_at_its_place() -> None:
    k = kernel(nested(60))
    program = rewrite(lower(k, k.bindings()[0]))
    for rides in Rides:
        with pytest.raises(TooLong, match=f"more than {MAX_OPERATIONS:,} operations") as caught:
            schedule(program, rides)
        (d,) = caught.value.diagnostics
        assert d.span is not None and caught.value.source is k.file.source and k.file.source.text[d.span.start :].startswith("softmax[N](")
    with pytest.raises(TooLong) as caught:
        backend("cpp").render(grad.backward(k).kernel)
    (d,) = caught.value.diagnostics
    assert d.span is not None and caught.value.source is not None and caught.value.source.text[d.span.start : d.span.end]


def test_what_is_within_the_budget_is_built_forward_and_backward() -> None:
    k = kernel(nested(10))
    for one in (k, grad.backward(k).kernel):
        plan = schedule(rewrite(lower(one, one.bindings()[0])))
        assert sum(p.readings for p in plan.passes if isinstance(p, Reduce)) >= 10
        source = backend("cpp").render(one)
        assert max(map(len, re.findall(r"\w+", source))) < 64  # names that clash are numbered


def test_a_long_backward_is_refused_at_the_forwards_operation() -> None:
    text = lines(300, lambda i: f"sin(a{i}) * cos(a{i}) + tanh(a{i})" if i else "x", "a300")
    for derive in (grad.backward, grad.forward_mode):
        with pytest.raises(TooLong, match="would be too long for one kernel") as caught:
            derive(kernel(text))
        (d,) = caught.value.diagnostics
        assert d.span is not None and re.match(r"\w+\(a\d+\)", text[d.span.start :])


@pytest.mark.parametrize("text, place", [
    (f"{HEAD.replace('x: T[..., N]', 'x: T[..., N], a0: float')}" + "".join(f"a{i + 1} = a{i} * a{i}\n" for i in range(300)) + "y = x * a300\n", "a299 * a299"),
    (f"{HEAD.replace('y: T[..., N]', 'y: T[...]').replace('x: T[..., N]', 'x: T[..., N], t: i64[...]')}a0 = x\n"
     + "".join(f"a{i + 1} = a{i} * x\n" for i in range(200)) + f"y = {' + '.join(f'pick[N](a{i}, t + {i})' for i in range(201))}\n", ""),
])  # fmt: skip
def test_numbers_and_picks_that_would_be_written_out_again_and_again_are_refused(text: str, place: str) -> None:
    k = kernel(text)
    with pytest.raises(KgenError) as caught:
        backend("cpp").render(k)
    (d,) = caught.value.diagnostics
    assert d.span is not None and place in text[d.span.start : d.span.end]
    with pytest.raises(KgenError):
        backend("cpp").render(grad.backward(k).kernel)
