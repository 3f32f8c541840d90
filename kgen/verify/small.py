"""Failures made small, and as Python that stands alone.

In: a case that fails, and what is wrong with it.  Out: the same finding of simpler arguments, with a program that shows it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from kgen.testing.reproducer import _uses, tensor
from kgen.testing.shrinking import Shrinker
from kgen.verify import judge
from kgen.verify.held import Held, Refused, Unloadable
from kgen.verify.plan import AS_DRAWN, Case, Setting, contents, described
from kgen.verify.report import Finding, Kind

#: Findings that a call of its own shows, in any process.
PLAIN = frozenset({
    Kind.VALUE, Kind.NAN, Kind.SIGN, Kind.SHAPE, Kind.DTYPE, Kind.RAISES, Kind.REMEMBERED, Kind.STRIDES, Kind.RETURNED, Kind.INPUT,
    Kind.CRASH, Kind.HANG, Kind.MEMORY,
})  # fmt: skip

#: Findings that depend on calls before.
REMEMBERS = (Kind.REMEMBERED, Kind.CHANGED)


def explained(held: Held, case: Case, found: list[Finding], seconds: float) -> list[Finding]:
    """The findings, the first of them of smaller arguments if that takes no more than so many seconds, and as a program."""
    first, setting = found[0], case.setting
    arguments = case.arguments
    if seconds > 0 and first.kind not in (Kind.HANG, Kind.LOADS):
        alone = Setting(way=setting.way, mode=setting.mode, pattern=setting.pattern, ends=setting.ends, defaults=setting.defaults)
        for simple in (alone,) * (first.kind not in REMEMBERS) + (setting,):
            held.restart()  # what it remembers of other calls is to say nothing here
            if _like(held, arguments, simple, first) is not None:
                setting = simple
                break
        else:
            return [replace(first, python=written(held, arguments, setting, first)), *found[1:]]
        small = Shrinker(held.plain, arguments, lambda a: _like(held, a, setting, first) is not None, seconds).smallest()
        if (shown := _like(held, small, setting, first)) is not None:
            arguments = small
            condition = shown.condition or first.condition
            first = replace(shown, case=first.case, number=first.number, small=described(small), condition=condition, help=first.help)
    return [replace(first, python=written(held, arguments, setting, first)), *found[1:]]


def _like(held: Held, arguments: dict[str, Any], setting: Setting, wanted: Finding) -> Finding | None:
    """The same finding of other arguments."""
    report, held.report = held.report, replace(held.report, findings=[], refused=[], untried=[], held={})
    held.advising = False
    if wanted.kind in REMEMBERS:
        held.restart()
    try:
        found = held.findings(arguments, setting)
    except Refused as refused:
        if wanted.kind is not Kind.RAISES or not wanted.message.startswith(refused.raised["type"]):
            return None
        return replace(wanted, message=f"{refused.raised['type']}: {refused.raised['text'].strip()[:400]}")
    except Unloadable:
        return None
    finally:
        held.report, held.advising = report, True
    return next((f for f in found if (f.kind, f.result) == (wanted.kind, wanted.result)), None)


def written(held: Held, arguments: dict[str, Any], setting: Setting, finding: Finding) -> str:
    """Python that shows a finding: by a call of its own, or where that needs more, by the same examination of this one case."""
    more = setting.again or setting.tall or setting.often
    simple = setting.mode and not (setting.side or setting.graph or setting.far or setting.alone or more)
    own = held.named.kind == "python" and not held.gradients
    if finding.kind not in PLAIN or not simple or not own or not held.loaded or held.loaded.get("own"):  # parameters of a module
        return _replayed(held, arguments, setting, finding)
    return _called(held, arguments, setting, finding)


def _imported(held: Held) -> list[str]:
    """Lines that import the candidate, as `candidate`."""
    named = held.named
    made = held.loaded.get("made") or named.name
    outer = named.name.split(".")[0] + ", get_init_inputs" * ("get_init_inputs" in made)
    if named.path.endswith(".py"):
        stem = named.path.rsplit("/", 1)[-1][:-3]
        folder = named.path.rsplit("/", 1)[0]
        near = os.path.relpath(folder)
        folder = folder if near.startswith("..") else near
        lines = ["import sys", f"sys.path.insert(0, {folder!r})", f"from {stem} import {outer}"]
    else:
        lines = [f"from {named.path} import {outer}"]
    return [*lines, *([f"candidate = {made}"] if made != "candidate" else [])]


def _given(held: Held, arguments: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Lines that make the tensors, and what stands for each argument in a call."""
    lines, names = [], {}
    for p in held.kernel.params:
        value = arguments[p.name]
        if p.is_tensor:
            lines.append(f"{p.name}_ = {tensor(value, held.device)}")
            names[p.name] = f"{p.name}_"
        else:
            names[p.name] = repr(value)
    return lines, names


def _called(held: Held, arguments: dict[str, Any], setting: Setting, finding: Finding) -> str:
    """A call of the candidate, and an assertion that fails."""
    people = held.people(held.filled(arguments))
    lines, names = _given(held, people)
    fresh = [r for r in held.kernel.results if r.state is None]
    left = held.left_out(setting)
    passed = {n: names[n] for n in held.takes if n not in left}
    outs = [f"{r.name}_out" for r in fresh] if setting.way != "fresh" else []
    if outs:
        want = judge.expected(held.kernel, people, held.device)
        bounds = [w for r, w in zip(held.kernel.results, want.results, strict=True) if r.state is None]
        for out, w in zip(outs, bounds, strict=True):
            dtype = f"dtype=torch.{judge.TORCH_NAMES[w.dtype]}{_on(held)}"
            lines.append(f"{out} = torch.full({tuple(w.exact.shape)}, {_filling(w.dtype)}, {dtype})")
    by_name = held.loaded.get("by_name", False)
    if setting.way == "destination":
        passed |= dict(zip([r.name for r in fresh], outs, strict=True))
    given = [f"{n}={v}" if by_name else v for n, v in passed.items()]
    if setting.way == "out":
        given.append(f"out={outs[0] if len(outs) == 1 else f'({chr(44).join(outs)})'}")
    call = f"candidate({', '.join(given)})"
    after: list[str] = []
    if finding.kind is Kind.REMEMBERED or "call " in finding.condition:
        which = setting.calls[int(finding.condition.split("call ")[1].split()[0]) - 1] if "call " in finding.condition else AS_DRAWN
        other = {n: contents(x, which) for n, x in people.items()}
        after.append(f"{call}  # a first call")
        after += [f"{n}_.copy_({tensor(other[n].contiguous(), held.device)})" for n, x in people.items() if hasattr(x, "numel")]
    after += _asserted(held, finding, call, fresh, outs)
    head = [*_imported(held), "import torch"]
    if used := [n for n in ("nan", "inf") if _uses(n, lines + after)]:
        head.append(f"from math import {', '.join(used)}")
    return "\n".join([*head, "", *lines, *after]) + "\n"


def _filling(dtype: str) -> str:
    """What a tensor for a result holds before a call that is shown."""
    return "nan" if dtype in judge.FORMATS else "True" if dtype == "bool" else "99"


def _on(held: Held) -> str:
    return f", device={held.device!r}" if held.device != "cpu" else ""


def _asserted(held: Held, finding: Finding, call: str, fresh: list[Any], outs: list[str]) -> list[str]:
    """The call, and what does not hold of it."""
    words = f"# {finding.kind.value}: {' '.join(finding.message.split())[:120]}"
    if finding.kind in (Kind.RAISES, Kind.CRASH, Kind.HANG, Kind.MEMORY):
        return [words, call, *(["torch.cuda.synchronize()"] if held.device == "cuda" else [])]
    if finding.kind is Kind.RETURNED:
        expected = "torch.Tensor" if len(fresh) == 1 else f"[{', '.join(['torch.Tensor'] * len(fresh))}]"
        got = "type(returned)" if len(fresh) == 1 else "[type(y) for y in returned]"
        return [words, f"returned = {call}", f"assert {got} == {expected}, {got}"]
    if finding.kind is Kind.INPUT:
        return [f"before = str({finding.result}_.tolist())", call, f"assert str({finding.result}_.tolist()) == before, {finding.result}_"]
    result = next(r for r in held.kernel.results if r.name == finding.result)
    if result.state:
        lines, name = [call], f"{result.state}_"
    elif outs:
        lines, name = [call], outs[fresh.index(result)]
    else:
        lines = [f"returned = {call}"]
        name = "returned" if len(fresh) == 1 else f"returned[{fresh.index(result)}]"
    if finding.kind in (Kind.SHAPE, Kind.DTYPE):
        got = f"tuple({name}.shape)" if finding.kind is Kind.SHAPE else f"str({name}.dtype)[6:]"
        return [*lines, f"assert {got} == {finding.expected!r}, {got}"]
    if finding.kind is Kind.STRIDES:
        return [*lines, f"assert {name}.is_contiguous(), {name}.stride()"]
    at = ", ".join(str(i) for i in finding.at)
    item = f"{name}[{at}].item()" if at else f"{name}.item()"
    if finding.kind is Kind.SIGN:
        return [*lines, f"got = {item}", f"assert str(got) == {str(finding.expected)!r}, got"]
    return [
        *lines, f"got = {item}", f"expected, bound = {finding.expected!r}, {finding.bound!r}  # exactly; the bound is derived",
        'print(f"{got} is to be {expected}, within {bound}")',
        "assert abs(got - expected) <= bound or got == expected or got != got and expected != expected",
    ]  # fmt: skip


def _replayed(held: Held, arguments: dict[str, Any], setting: Setting, finding: Finding) -> str:
    """The examination of this one case."""
    lines, names = _given(held, held.filled(arguments))
    shown = ", ".join(f"{n}={v}" for n, v in names.items())
    asked = ", ".join(
        ["gradients=True"] * held.gradients + [f"{k}={v!r}" for k, v in setting.__dict__.items() if v != getattr(Setting(), k)]
    )
    head = ["import torch", "from kgen.verify.again import again"]
    if used := [n for n in ("nan", "inf") if _uses(n, lines + [shown])]:
        head.append(f"from math import {', '.join(used)}")
    named = held.named
    near = os.path.relpath(named.path) if os.path.isabs(named.path) else ""
    path = near if near and not near.startswith("..") else named.path
    what = f"{path}:{named.name}" if named.kind == "python" else path
    spec = held.spec.strip("\n").replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    text = [*head, "", f'spec = """\n{spec}\n"""', *lines, f"# {finding.kind.value}: {' '.join(finding.message.split())[:120]}"]
    return "\n".join([*text, f"again({what!r}, spec, dict({shown}), device={held.device!r}{', ' * bool(asked)}{asked})"]) + "\n"
