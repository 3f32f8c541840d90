"""Plans of launches, drawn: sizes, strides, alignments, dtypes, what is kept, ladders, architectures.

`draw(rng)` gives what `rows.plan` is asked; a plan holds itself to its rules when it is made (`kgen.runtime.verified`).
"""

from __future__ import annotations

import random
from typing import Any

from kgen.runtime import tuned
from kgen.runtime.limits import limits
from kgen.runtime.rows import RowOperandPlace
from kgen.runtime.tuned import Step

ARCHES = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
#: Where one way of walking ends and another begins, in elements.
EDGES = (16, 17, 64, 128, 129, 256, 1024, 4096, 5000, 8192, 13_312, 13_313, 16_384, 16_385, 28_000, 32_768, 65_536, 65_537, 131_072, 2**20 + 1)


def size(rng: random.Random, most: float) -> int:
    if rng.random() < 0.3:
        return min(int(most), rng.choice(EDGES))
    made = int(2 ** rng.uniform(0, most.bit_length() if isinstance(most, int) else 20))
    return max(1, min(int(most), made if rng.random() < 0.5 else made // 16 * 16 or 1))


def split(rng: random.Random, n: int) -> tuple[int, ...]:
    """A size as one to three dims, near enough."""
    dims = [n]
    while len(dims) < 3 and rng.random() < 0.2:
        d = rng.choice((1, 2, 3, 4, 8, 12))
        dims[-1:] = [d, max(1, dims[-1] // d)]
    rng.shuffle(dims)
    return tuple(dims)


def operand(rng: random.Random, row_sizes: tuple[int, ...], sizes: tuple[int, ...], order: list[int], kind: str) -> RowOperandPlace:
    """A tensor over some of the dims, laid out in an order: dense, padded, expanded, or beginning anywhere; an index has no memory."""
    dims = (*row_sizes, *sizes)
    has = [rng.random() < 0.85 for _ in dims]
    if kind in ("main", "result"):
        has = [True] * len(dims)
    elif kind == "row":
        has[len(row_sizes) :] = [False] * len(sizes)
    elif not any(has[len(row_sizes) :]) and sizes:
        has[-1] = True
    itemsize = rng.choice((1, 2, 2, 2, 4, 4, 4, 8))
    strides, step = [0] * len(dims), 1
    if kind == "index":
        strides[rng.randrange(len(dims))] = 1
        itemsize = 0
    else:
        step = rng.choice((1,) * 12 + (2, 7, 64))
        for d in order if rng.random() < 0.9 else rng.sample(order, len(order)):
            if has[d]:
                strides[d] = step if dims[d] > 1 or rng.random() < 0.5 else rng.choice((0, 5))
                step *= dims[d] + rng.choice((0,) * 9 + (1, 8, 64))
    address = 0 if itemsize == 0 or rng.random() < 0.7 else rng.randrange(0, 16, itemsize)
    element = any(strides[len(row_sizes) :]) or kind in ("main", "result", "some") and bool(sizes)
    kept = kind in ("main", "some") and element and rng.random() < 0.6
    return RowOperandPlace(
        tuple(strides[: len(row_sizes)]), tuple(strides[len(row_sizes) :]), itemsize, address, element, kept, kind != "result",
        sum(has[: len(row_sizes)]),
    )  # fmt: skip


def ladder(rng: random.Random, kind: str) -> tuple[Step, ...]:
    """None, the shipped one, or steps of the user's own that `kgen tune` could have written."""
    if (what := rng.random()) < 0.3:
        return ()
    if what < 0.6:
        return tuned.SHIPPED["sm_90"][kind]
    found = []
    for _ in range(200):
        where = rng.choice(("registers", "shared", "cluster", "loop"))
        threads = rng.choice((32, 64, 128, 256, 512, 768, 1024))
        team = rng.choice((0, 1, 8, 32, threads)) if where != "shared" else rng.choice((0, 0, 32))
        step = Step(size(rng, 2**17), threads, team, rng.choice((1, 2, 4, 8, 10, 16)), rng.choice((1, 2, 3, 4, 6, 8)), where)
        if tuned.sound(kind, step):
            found.append(step)
        if len(found) == 4:
            break
    return tuple(sorted(found))


def draw(rng: random.Random) -> tuple[Any, ...]:
    """What `rows.plan` takes, in order."""
    across = rng.random() < 0.2
    n = size(rng, 2**21)
    row_sizes = split(rng, size(rng, max(1, 2**27 // n))) if rng.random() < 0.9 else ()
    sizes = split(rng, n) if rng.random() < 0.97 else ()
    if rng.random() < 0.01:
        row_sizes, sizes = (3,), (2 ** rng.randint(31, 34) + rng.choice((0, 1, 8)),)
    order = [*reversed(range(len(row_sizes), len(row_sizes) + len(sizes))), *reversed(range(len(row_sizes)))]
    if across:
        order = order[len(sizes) :] + order[: len(sizes)]
    kinds = ["main", *rng.choices(("some", "row", "index"), k=rng.choice((0, 0, 1, 2, 3, 6))), *["result"] * rng.choice((0, 1, 1, 2))]
    operands = tuple(operand(rng, row_sizes, sizes, order, kind if row_sizes or sizes or kind != "index" else "row") for kind in kinds)
    reductions = rng.choice((0, 1, 1, 1, 2, 2, 3, 9, 16, 17)) if sizes else 0
    stores = any(o.element and not o.read for o in operands)
    arch = rng.choice(ARCHES)
    room = limits(arch) if reductions <= 16 else limits(arch)._replace(cluster=0)
    words = rng.choice((2, 2, 4, 4, 8, 12, 40, 120, 400, 2000)) if reductions else 0
    known = ladder(rng, tuned.kind(any(o.kept for o in operands), reductions, words))
    return row_sizes, sizes, operands, rng.choice((0, 0, 0, 1, 3)), reductions, stores, words, room, rng.random() < 0.8, known
