"""Which cases are tried, and how each is called: the most telling first.

In: a spec, limits and a seed.  Out: `Case`s, whose arguments and settings follow from these alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kgen import check as checker
from kgen.testing.cases import LAYOUTS, Limits, plain
from kgen.testing.holding import few_long_rows
from kgen.types import ELLIPSIS, VARIABLE
from kgen.verify import shaped
from kgen.verify.memory import FAR
from kgen.verify.shaped import drawn

#: What the tensors hold in successive calls of a case: as drawn, backwards, and as drawn but for the last element.
AS_DRAWN, BACKWARDS, LAST = "drawn", "backwards", "last"


@dataclass(frozen=True)
class Setting:
    """How a case is called.

    `mode` says where storages lie in their regions, `pattern` which byte memory beside them holds.  `way` is how results are given:
    "fresh", "out" or "destination".  `calls` are the contents of the calls one after the other, with the same tensors; the results of
    the first one are looked at again, `later` seconds after the last.  `side`: on another stream; `graph`: recorded and replayed; `far`:
    a dim along which places lie far apart, and whether from the middle on; `again`: how many runs are to have the same bits; `alone`: a
    row alone is to have the bits that it has in its batch; `ends`: pages beside tensors are closed; `defaults`: what has a default is
    left out; `between`: results that are given lie between other elements; `tall`: rows are repeated until a tensor has so many
    elements."""

    mode: str = "end"
    pattern: int = 0
    way: str = "fresh"
    calls: tuple[str, ...] = (AS_DRAWN,)
    later: float = 0.0
    side: bool = False
    graph: bool = False
    far: tuple[int, ...] = ()
    again: int = 0
    alone: bool = False
    ends: bool = True
    defaults: bool = False
    between: bool = False
    tall: int = 0


@dataclass(frozen=True)
class Case:
    """A case: its arguments by the parameters of the plain kernel, its setting, and what it may be refused for ("": nothing)."""

    number: int
    label: str
    arguments: dict[str, Any]
    setting: Setting
    may_refuse: str = ""
    probe: str = ""  # the dtype that it asks for first


@dataclass(frozen=True)
class Wanted:
    """What is to be tried: `limits` of arguments, `contiguous` whether other layouts may be refused, what is held besides, and whether the
    dtypes are `claimed`, so that none may be refused."""

    limits: Limits
    contiguous: bool = False
    deterministic: bool = False
    batch_invariant: bool = False
    examples: int = 100
    seed: int = 0
    device: str = "cpu"
    claimed: bool = False


def dtypes_of(kernel: checker.Kernel, limits: Limits) -> list[str]:
    """What the dtype variables may stand for, all of them alike; [""] where there are none."""
    if not kernel.variables:
        return [""]
    names = [d.name for d in VARIABLE]
    return [d for d in names if all(d in (limits.of(v) or names) for v in kernel.variables)] or [names[0]]


def cases(kernel: checker.Kernel, wanted: Wanted, ways: Sequence[str], taken: Any) -> Iterator[Case]:
    """The cases of a plain kernel.  `ways` are those in which the candidate gives results; `taken` is a list of dtypes that it takes, which
    grows shorter while the first cases, one for each, are held."""
    limits = wanted.limits
    fitting = _fits(limits)
    number = 0
    for dtype in dtypes_of(kernel, limits):
        arguments = plain(kernel, dtype or "f32") if fitting else drawn(kernel, wanted.seed, 0, _simple(limits, kernel, dtype))
        first = number == 0
        calls = (AS_DRAWN, BACKWARDS, LAST) if first else (AS_DRAWN, BACKWARDS)
        setting = Setting("end", number % 2, ways[number % len(ways)], calls, 0.02 * first, again=3 * wanted.deterministic)
        case = Case(number, "plain data", arguments, setting, probe=dtype)
        yield _aligned(case) if wanted.contiguous else case
        number += 1
    for k, case in enumerate(_further(kernel, wanted, ways, taken)):
        if k >= wanted.examples:
            return
        case = replace(case, number=number)
        yield _aligned(case) if wanted.contiguous and not case.may_refuse else case
        number += 1


def _aligned(case: Case) -> Case:
    """The case with tensors that begin with pages, where they would not be aligned if they ended with them."""
    if case.setting.mode != "end" or _whole(case.arguments):
        return case
    return replace(case, setting=replace(case.setting, mode="begin"))


def _fits(limits: Limits) -> bool:
    """Whether plain data keep the limits."""
    return not (limits.sizes or limits.multiples or limits.most) and 1 in tuple(limits.leading)


def _simple(limits: Limits, kernel: checker.Kernel, dtype: str) -> Limits:
    """Limits of a case of normal numbers in dense tensors."""
    dtypes = {**(limits.dtypes or {}), **dict.fromkeys(kernel.variables, dtype)} if dtype else limits.dtypes
    return replace(limits, special=False, layouts=("dense",), dtypes=dtypes, broadcast=False)


def _whole(arguments: dict[str, Any]) -> bool:
    """Whether each tensor is a whole number of 64 bytes, so that one which ends with a page begins aligned."""
    return all(x.numel() * x.element_size() % 64 == 0 for x in arguments.values() if hasattr(x, "numel"))


def _narrowed(limits: Limits, kernel: checker.Kernel, taken: Sequence[str]) -> Limits:
    """The limits, of dtypes that the candidate takes."""
    if not kernel.variables or not taken or limits.dtypes and not set(taken) & {d for v in kernel.variables for d in limits.of(v)}:
        return limits
    return replace(limits, dtypes={v: tuple(d for d in (limits.of(v) or taken) if d in taken) for v in kernel.variables})


def _further(kernel: checker.Kernel, wanted: Wanted, ways: Sequence[str], taken: Sequence[str]) -> Iterator[Case]:
    """The cases behind the first ones, without an end."""
    base = _narrowed(wanted.limits, kernel, taken)
    main = replace(base, layouts=("dense",)) if wanted.contiguous else base
    dense = replace(base, layouts=("dense",))
    special = _special(kernel, wanted, base, dense)
    if "out" in ways and any(r.dims and not r.state for r in kernel.results):
        few = base.sizes or 1 not in tuple(base.leading)
        arguments = drawn(kernel, wanted.seed, 14, replace(dense, special=False)) if few else _many(kernel, dense, wanted.seed, "dense")
        special.insert(0, ("results between other elements", arguments, Setting("end", 1, between=True), "layout" * wanted.contiguous))
    k = 0
    while True:
        if k < len(special):
            label, arguments, setting, may = special[k]
            yield Case(0, label, arguments, replace(setting, way="out" if setting.between else ways[k % len(ways)]), may)
        limits = dense if k < 3 else main
        arguments = drawn(kernel, wanted.seed, k, limits)
        twice = k % 5 == 1
        setting = Setting(
            "begin" if k % 3 == 2 else "end", k // 2 % 2, ways[k % len(ways)],
            (AS_DRAWN, BACKWARDS) if twice else (AS_DRAWN,), side=wanted.device == "cuda" and k % 7 == 1,
            again=3 if wanted.deterministic and k % 3 == 0 else 0,
        )  # fmt: skip
        yield Case(0, f"random case {k} of seed {wanted.seed}", arguments, setting)
        k += 1


Special = tuple[str, dict[str, Any], Setting, str]


def _special(kernel: checker.Kernel, wanted: Wanted, base: Limits, dense: Limits) -> list[Special]:
    """Cases that a random draw seldom meets, each with its label, setting, and what it may be refused for."""
    made: list[Special] = []
    seed, free = wanted.seed, {d for p in kernel.params for d in p.dims or () if d != ELLIPSIS} - set(kernel.literals)
    loose = tuple(x for x in LAYOUTS if x != "dense")
    may = "layout" if wanted.contiguous else ""
    cuda = wanted.device == "cuda"

    def add(label: str, arguments: dict[str, Any], setting: Setting, may: str = "") -> None:
        made.append((label, arguments, setting, may))

    if wanted.batch_invariant and any(ELLIPSIS in (p.dims or ()) for p in kernel.params):
        for k in (0, 1):
            sizes = {d: base.size(d) or (64, 256, 1024) for d in free}
            arguments = drawn(kernel, seed, 4 + k, replace(dense, special=False, sizes={**sizes, ELLIPSIS: (5,)}, broadcast=False))
            add("a row alone", arguments, Setting("middle", k, alone=True))
    if cuda:
        ordinary = replace(dense, special=False)
        add("a side stream", drawn(kernel, seed, 2, ordinary), Setting("middle", 0, side=True, calls=(AS_DRAWN, BACKWARDS)))
        add("a CUDA graph", drawn(kernel, seed, 3, ordinary), Setting("middle", 1, graph=True), "graph")
    for layout in loose:
        add(f"{layout} tensors", drawn(kernel, seed, 1, replace(base, layouts=(layout,), special=False)), Setting("end", 0), may)
    long = few_long_rows(kernel, seed)
    if long is not None and not base.sizes and 1 in tuple(base.leading):
        only = replace(dense, sizes=long.sizes, max_elements=long.max_elements, special=False)
        add("long rows", drawn(kernel, seed, 0, only), Setting("end", 1))
    if not base.sizes and 1 in tuple(base.leading) and base.special:
        for label, arguments in shaped.special_rows(kernel, dense, seed):
            add(label, arguments, Setting("end", 0))
    if base.special and (outside := shaped.far_outside(kernel, dense, seed)) is not None:
        add("indices far outside", outside, Setting("begin", 0))
    if base.special:
        add("zeros and ones", shaped.zeros_and_ones(kernel, dense, seed), Setting("end", 1))
    if any(p.optional or p.default is not None for p in kernel.params) and _fits(base):
        of = dtypes_of(kernel, base)
        arguments = plain(kernel, "f32" if "f32" in of else of[-1] or "f32")
        small = {n: x * 2.0**-20 if hasattr(x, "dtype") and x.is_floating_point() else x for n, x in arguments.items()}
        add("what has a default left out", arguments, Setting("middle", 0, defaults=True))
        add("what has a default left out, of small numbers", small, Setting("middle", 1, defaults=True))  # eps counts
    if not base.sizes and 1 in tuple(base.leading) and not wanted.contiguous:
        often = Setting("end", 1, calls=(AS_DRAWN, BACKWARDS) * 3)  # threads that share what each is to have seldom meet
        add("many permuted elements", _many(kernel, base, seed, "permuted"), often)
    if not base.sizes and 1 in tuple(base.leading):
        add("one element", drawn(kernel, seed, 5, replace(dense, sizes={d: 1 for d in free} | _batch(kernel, ()))), Setting("end", 0))
        if (many := _many_rows(kernel, dense, seed)) is not None:
            add("many rows", many, Setting("end", 1))
        for d in [ELLIPSIS] if any(ELLIPSIS in (p.dims or ()) for p in kernel.params) else sorted(free)[:1]:
            sizes = {d: (0,)} if d != ELLIPSIS else {ELLIPSIS: (0,)}
            add("no elements", drawn(kernel, seed, 6, replace(dense, sizes=sizes, broadcast=False)), Setting("begin", 0))
    for arguments, dim in _far(kernel, wanted, dense) if not wanted.contiguous else ():
        add("far apart", arguments, Setting("begin", 0, far=(dim, 1 if cuda else 2), ends=False), may)
    if cuda and (few := repeatable(kernel, dense, seed)) is not None:
        add("more elements than 32 bits count", few, Setting("middle", 0, tall=TALL))
    return made


def _batch(kernel: checker.Kernel, shape: tuple[int, ...]) -> dict[str, Any]:
    return {ELLIPSIS: shape} if any(ELLIPSIS in (p.dims or ()) for p in kernel.params) and shape else {}


def _many(kernel: checker.Kernel, limits: Limits, seed: int, layout: str) -> dict[str, Any]:
    """A case of some 90,000 elements, which threads share out, in tensors of a layout."""
    free = {d for p in kernel.params for d in p.dims or () if d != ELLIPSIS} - set(kernel.literals)
    leading = (1 if free else 2) if any(ELLIPSIS in (p.dims or ()) for p in kernel.params) else 0
    each = max(2, int((90_000 / math.prod(kernel.literals.values())) ** (1 / max(1, len(free) + leading))))
    sizes: dict[str, Any] = {d: (each,) for d in free} | _batch(kernel, (each,) * leading)
    loosely = replace(limits, sizes=sizes, layouts=(layout,), special=False, broadcast=False, max_elements=100_000)
    return drawn(kernel, seed, 12, loosely)


def _many_rows(kernel: checker.Kernel, limits: Limits, seed: int) -> dict[str, Any] | None:
    """A case with more rows than a grid's second dim has blocks."""
    if not any(ELLIPSIS in (p.dims or ()) for p in kernel.params):
        return None
    free = {d for p in kernel.params for d in p.dims or () if d != ELLIPSIS} - set(kernel.literals)
    sizes: dict[str, Any] = {d: (2,) if k == 0 else (1,) for k, d in enumerate(sorted(free))} | {ELLIPSIS: (70_001,)}
    return drawn(kernel, seed, 7, replace(limits, sizes=sizes, special=False, broadcast=False, max_elements=150_000))


#: Elements that 32 bits do not count, and some more; and the rows that are repeated until there are so many, a prime number of them: what
#: lies 2^31 or 2^32 elements apart is never alike.
TALL, REPEATED = (1 << 32) + (1 << 20), 61
#: Cases of what lies far apart: the leading dims, the named dims and the last of them (none: as drawn), and which dim it is.
APART: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...] = (
    ((3, 2), (3, 4097), 0), ((2, 5), (5, 5), 1), ((8200,), (5, 5), 0), ((2,), (5, 4097), -1),
)  # fmt: skip


def _far(kernel: checker.Kernel, wanted: Wanted, limits: Limits) -> list[tuple[dict[str, Any], int]]:
    """Cases in which 32 bits do not reach what lies along a dim, each with the dim: few long rows, short ones with others between them,
    many rows, and elements of a row.  On a GPU, whose memory has no holes, numbers have 16 bits if they may."""
    found = []
    if wanted.device == "cuda":
        limits = _narrowest(kernel, limits)
    for k, (leading, named, dim) in enumerate(APART):
        sizes = _apart(kernel, limits, leading, named)
        if sizes is None:
            continue
        arguments = drawn(kernel, wanted.seed, 8 + k, replace(limits, sizes=sizes, special=False, broadcast=False, max_elements=50_000))
        if any(far_strides(x, dim) for x in arguments.values() if hasattr(x, "stride")):
            found.append((arguments, dim))
    return found


def repeatable(kernel: checker.Kernel, limits: Limits, seed: int) -> dict[str, Any] | None:
    """A few rows, whose results are those of each of their repetitions; None where rows depend on one another or on their number."""
    of_rows = all(ELLIPSIS in (r.dims or ()) for r in kernel.results) and any(ELLIPSIS in (p.dims or ()) for p in kernel.params)
    across = any(ELLIPSIS in (v.attr if isinstance(v.attr, tuple) else (v.attr,)) for v in kernel.values)
    if not of_rows or across or ELLIPSIS in (limits.sizes or ()) or 1 not in tuple(limits.leading):
        return None
    limits = _narrowest(kernel, limits)
    free = list(dict.fromkeys(d for p in kernel.params for d in p.dims or () if d != ELLIPSIS and d not in kernel.literals))
    sizes: dict[str, Any] = {d: limits.size(d) or (1024 if d == free[-1] else 3,) for d in free}
    sizes[ELLIPSIS] = (REPEATED,) if free else (REPEATED, 1024)
    return drawn(kernel, seed, 15, replace(limits, sizes=sizes, special=False, broadcast=False, max_elements=1 << 20))


def _narrowest(kernel: checker.Kernel, limits: Limits) -> Limits:
    """The limits, of 16-bit floats where they may be."""
    narrow = [d for d in dtypes_of(kernel, limits) if d in ("bf16", "f16")][:1]
    return replace(limits, dtypes={**(limits.dtypes or {}), **dict.fromkeys(kernel.variables, narrow[0])}) if narrow else limits


def _apart(kernel: checker.Kernel, limits: Limits, leading: tuple[int, ...], named: tuple[int, ...]) -> dict[str, Any] | None:
    """The sizes of a case of APART; None where the kernel has no such dims, or they are limited.  Where no tensor has leading dims, the
    first ones of that which has most dims stand for them."""
    sizes: dict[str, Any] = dict(limits.sizes or {})
    free = list(dict.fromkeys(d for p in kernel.params for d in p.dims or () if d != ELLIPSIS and d not in kernel.literals))
    first: list[str] = []
    if any(ELLIPSIS in (p.dims or ()) for p in kernel.params):
        if ELLIPSIS in sizes or 1 not in tuple(limits.leading):
            return None
        sizes[ELLIPSIS] = leading if free else (*leading, *(named[-1:] or (33,)))
    elif named:
        widest = max((p.dims or () for p in kernel.params), key=len)
        first = [d for d in widest if d in free][: len(leading)]
        if sizes or len(first) < len(leading) or len(widest) <= len(leading):
            return None
        sizes = {d: (n,) for d, n in zip(first, leading, strict=True)}
        free = [d for d in widest if d in free]
    if named:
        sizes |= {d: limits.size(d) or (named[d == free[-1]],) for d in free if d not in first}
    return sizes


def far_strides(x: Any, dim: int, within: int = 1) -> tuple[int, ...] | None:
    """Strides with which what lies along a dim, from the middle on (`within` 2) or the last place alone (1), is beyond what 32 bits with a
    sign can say; None for a tensor of fewer than three places there."""
    if x.dim() < 2 or not -x.dim() <= dim < x.dim() - 1 or x.shape[dim] < 3 or not x.numel():
        return None
    dim %= x.dim()
    others = x.movedim(dim, 0).contiguous().stride()[1:]
    stride = (1 << 31) // max(1, (x.shape[dim] - 1) // within) + 8
    if x.numel() // x.shape[dim] > stride or x.shape[dim] * stride * x.element_size() > FAR:
        return None
    return (*others[:dim], stride, *others[dim:])


def contents(x: Any, which: str) -> Any:
    """What a tensor holds in a call of a case: other numbers of the same kind, its shape kept."""
    if which == AS_DRAWN or not hasattr(x, "numel") or not x.numel():
        return x
    if x.dtype.is_floating_point and x.element_size() == 1:  # of which torch compares none
        return contents(x.contiguous().view(_bytes()), which).view(x.dtype)
    flat = x.contiguous().flatten().clone()
    if which == BACKWARDS:
        return flat.flip(0).view(x.shape)
    last = flat[-1].clone()
    if bool(flat[0] != last):
        flat[-1] = flat[0]
    else:
        flat[-1] = last * 2 + 1 if x.dtype.is_floating_point else last ^ 1
    return flat.view(x.shape)


def _bytes() -> Any:
    import torch

    return torch.uint8


def described(arguments: dict[str, Any]) -> str:
    """Arguments in words."""
    return ", ".join(
        f"{k}={v if not hasattr(v, 'shape') else f'{str(v.dtype)[6:]}{list(v.shape)} strides {list(v.stride())}'}"
        for k, v in arguments.items()
    )
