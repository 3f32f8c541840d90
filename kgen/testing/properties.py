"""What must hold of any program, each property a function that is usable alone.

In: a checked kernel, and where one runs a target, a seed and the numbers of the cases.  Out: a `Report` of what was looked at;
raises `Violation` (an `AssertionError`) where the property does not hold, `KgenError` where no code or derivative can be made
for the kernel.

    prints_and_parses   its text, set well or written anew from its values, gives the same program
    renames             other names change nothing but names, in the program and in every emitted source
    renders             every target has source
    rules_keep          each rule of `rewrite` keeps every bit, or the bound that it states; so does `expand`
    agrees              a target is within the derived bound, and bit for bit with the formula's own reading where every operator
                        is exact
    backward_agrees     the derived backward, saved and computed anew, is autograd's of the formula in float64
    gradients_agree     the backward's kernels on a target are within the derived bound
    rows_alone          a row alone, in a batch and in a larger one has the same bits
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from kgen import check as checker
from kgen import syntax, typeset
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.ops import OPS, REDUCTIONS, TARGETS
from kgen.runtime.evaluate import Evaluator
from kgen.syntax import Apply, Equation, Expr, Header, Helper, Name
from kgen.testing import checks
from kgen.testing.checks import Report, Trial
from kgen.testing.programs import AWKWARD, AWKWARD_DIMS
from kgen.types import DTYPES, ELLIPSIS, FLOAT, Float, boolean, is_float, is_variable


class Violation(AssertionError):
    """A property that does not hold; the message says what was found."""


def hold(ok: bool, message: str) -> None:
    if not ok:
        raise Violation(message)


# ------------------------------------------------------------------------------------------------ text


def prints_and_parses(kernel: Kernel) -> Report:
    """Its text set well parses to the same tree and stays as it is when set again; the spec that is written anew from its values
    has the same values."""
    file = kernel.file
    printed = typeset.format_file(file)
    again = syntax.parse(printed, file.source.name)
    hold(len(file.statements) == len(again.statements), f"printing changes the number of statements:\n{printed}")
    for a, b in zip(file.statements, again.statements, strict=True):
        hold(_shape(a) == _shape(b), f"printing changes a statement: {_shape(a)} became {_shape(b)}\n{printed}")
    hold(typeset.format_file(again) == printed, f"printing twice differs:\n{printed}")
    hold(checker.check(again).values == kernel.values, f"printing changes the values:\n{printed}")
    if not any(r.state for r in kernel.results):
        text = written(kernel)
        try:
            anew = checker.check(syntax.parse(text, "anew.k"))
        except KgenError as error:
            raise Violation(f"the spec written from the values is refused: {error}\n{text}") from None
        hold(structure(anew) == structure(kernel), f"the spec written from the values has other values:\n{text}")
    return Report(kernel.name, "")


def _shape(s: syntax.Statement) -> tuple:
    """A statement without its places and brackets."""
    if isinstance(s, Header):
        results = [(r.name.name, typeset.format_type(r.type)) for r in s.results]
        return (s.name.name, *(typeset.format_param(p) for p in s.params), *results)
    own = [s.name.name] if isinstance(s, Equation) else [n.name for n in (s.name, *s.dims, *s.params)]
    nodes: list = []
    for n in syntax.postorder(s.body):
        if isinstance(n, Apply):
            nodes.append((n.op, len(n.args), n.written, None if n.dims is None else [d.name for d in n.dims]))
        else:
            nodes.append(n.name if isinstance(n, Name) else n.text)
    return (*own, *nodes)


def written(kernel: Kernel) -> str:
    """The kernel's spec, written anew from its values."""
    from kgen.write import Declared, Names, write

    params = [Declared(p.name, p.dtype, p.dims, p.default) for p in kernel.params]
    results = [(Declared(r.name, r.dtype, r.dims), r.value) for r in kernel.results]
    taken = [kernel.name, *(p.name for p in kernel.params), *(r.name for r in kernel.results), *kernel.variables]
    taken += [d for p in kernel.params for d in p.dims or ()]
    return write(kernel.name, [], params, results, kernel.values, {}, {}, Names(taken))


def structure(kernel: Kernel, names: dict[str, str] | None = None) -> list:
    """The results as trees of operators, shared parts as numbers; `names` renames parameters, dims and dtype variables."""
    names = names or {}
    seen: dict[tuple, int] = {}
    number: list[int] = []

    def named(attr: Any) -> Any:
        return tuple(names.get(a, a) for a in attr) if isinstance(attr, tuple) else attr

    for v in kernel.values:
        attr = named(v.attr) if v.op not in ("param", "size", "index") else names.get(str(v.attr), str(v.attr))
        t = Float(frozenset(names.get(n, n) for n in v.type.of)) if isinstance(v.type, Float) else v.type
        key = (v.op, tuple(number[a] for a in v.args), attr if v.op != "lit" else checker.exact(str(attr)), str(t), named(v.dims))
        number.append(seen.setdefault(key, len(seen)))
    kept: dict[int, tuple] = {n: key for key, n in seen.items()}
    found: list = []
    order: dict[int, int] = {}

    def reach(root: int) -> None:  # in the order of the results, whatever else there is
        todo = [root]
        while todo:
            n = todo[-1]
            missing = [a for a in kept[n][1] if a not in order]
            if n in order or not missing:
                todo.pop()
                if n not in order:
                    order[n] = len(order)
                    op, args, *rest = kept[n]
                    found.append((op, tuple(order[a] for a in args), *rest))
                continue
            todo.extend(reversed(missing))

    for r in kernel.results:
        reach(number[r.value])
        found.append((names.get(r.name, r.name), order[number[r.value]], names.get(r.dtype, r.dtype), named(r.dims)))
    return found


def renames(kernel: Kernel, seed: int = 0) -> Report:
    """Under other names, awkward ones among them, the values are the same; under names that are as long as one another (a source breaks
    its lines where they are long) the source for one of the targets is the same too, token by token, but for names."""
    from kgen.backends import backend

    other, names = renamed(kernel, random.Random(f"names {seed}"))
    hold(structure(other, {new: old for old, new in names.items()}) == structure(kernel),
         f"renaming changes the values, with {names}:\n{other.file.source.text}")  # fmt: skip
    one, two = (renamed(kernel, letters)[0] for letters in ("vN", "uM"))
    for target in random.Random(f"target {seed}").sample(TARGETS, 1):
        difference = _renamed_tokens(*(_tokens(backend(target).render(k), target) for k in (one, two)))
        hold(not difference, f"renaming changes the {target} source: {difference}\n{one.file.source.text}")
    return Report(kernel.name, "")


def renamed(kernel: Kernel, how: random.Random | str) -> tuple[Kernel, dict[str, str]]:
    """The kernel under other names of its parameters, dims, results and equations, and which name became which: `how` is a source of
    choices among awkward names, or two letters with which plain ones begin."""
    header = next(s for s in kernel.file.statements if isinstance(s, Header))
    plain = [*(p.name.name for p in header.params), *(s.name.name for s in kernel.file.statements if isinstance(s, Equation))]
    dims = dict.fromkeys(d.name for p in header.params for d in p.type.dims or () if d.name != ELLIPSIS)
    helpers = {s.name.name for s in kernel.file.statements if isinstance(s, Helper)}
    taken = {*helpers, kernel.name, *kernel.variables, *(f"{v}32" for v in kernel.variables)}
    names: dict[str, str] = {}
    for k, wanted in enumerate(([n for n in dict.fromkeys(plain) if not n.endswith("'")], list(dims))):
        if isinstance(how, str):
            chosen = [f"{how[k]}{'qz'[k]}{j:02}" for j in range(len(wanted))]
        else:
            pool = (AWKWARD, AWKWARD_DIMS)[k]
            chosen = how.sample([n for n in (*pool, *(f"{'vN'[k]}_{j}" for j in range(len(wanted)))) if n not in taken], len(wanted))
        names |= zip(wanted, chosen, strict=True)
        taken.update(chosen)
    names |= {f"{old}'": f"{new}'" for old, new in names.items()}

    def word(n: Name) -> Name:
        return replace(n, name=names.get(n.name, n.name))

    def kind(t: syntax.Type) -> syntax.Type:
        return t if t.dims is None else replace(t, dims=tuple(map(word, t.dims)))

    def body(root: Expr) -> Expr:
        made: dict[int, Expr] = {}
        for node in syntax.postorder(root):
            if isinstance(node, Name):
                made[id(node)] = word(node)
            elif isinstance(node, Apply):
                given = None if node.dims is None else tuple(map(word, node.dims))
                made[id(node)] = replace(node, args=tuple(made[id(a)] for a in node.args), dims=given)
            else:
                made[id(node)] = node
        return made[id(root)]

    statements: list[syntax.Statement] = []
    for s in kernel.file.statements:
        if isinstance(s, Header):
            params = tuple(replace(p, name=word(p.name), type=kind(p.type)) for p in s.params)
            results = tuple(replace(r, name=word(r.name), type=kind(r.type)) for r in s.results)
            statements.append(replace(s, params=params, results=results))
        else:
            statements.append(replace(s, name=word(s.name), body=body(s.body)) if isinstance(s, Equation) else s)
    text = typeset.format_file(replace(kernel.file, statements=tuple(statements), comments=()))
    return checker.check(syntax.parse(text, kernel.file.source.name)), names


_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<hash>\#[^\n]*)|(?P<string>\"[^\"\n]*\"|'[^'\n]*')|[A-Za-z_]\w*|\.?\d[\w.]*|\S",
    re.S,
)


def _tokens(source: str, target: str) -> list[str]:
    """The words and signs of a source, comments and texts (which carry the spec's own words) left out."""
    if target == "triton":
        source = re.sub(r'"""(?:[^"\\]|\\.|"(?!""))*"""', "", source)
    found = []
    for match in _TOKEN.finditer(source):
        if match["comment"] and target != "triton" or match["hash"] and target == "triton" or match["string"]:
            continue
        found.append(match.group())
    return found


def _renamed_tokens(ours: list[str], theirs: list[str]) -> str:
    """Where two token streams differ by more than the spelling of names; "" where they do not."""
    for k, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b and not (_is_word(a) and _is_word(b)):
            return f"`{' '.join(ours[max(0, k - 8) : k + 4])}` became `{' '.join(theirs[max(0, k - 8) : k + 4])}`"
    return "" if len(ours) == len(theirs) else f"{len(ours)} tokens became {len(theirs)}"


def _is_word(token: str) -> bool:
    return token[0].isalpha() or token[0] == "_"


def renders(kernel: Kernel) -> Report:
    """Every target has source, and Triton's is Python."""
    from kgen.backends import backend

    for target in TARGETS:
        source = backend(target).render(kernel)
        if target == "triton":
            compile(source, f"{kernel.name}_triton.py", "exec", dont_inherit=True)
    return Report(kernel.name, "")


# ------------------------------------------------------------------------------------------------ rules


class Interpreted(Evaluator):
    """A program evaluated by PyTorch: the lets are read as values whose conversions are all explicit."""

    def __init__(self, kernel: Kernel, program: Any, arguments: dict[str, Any]):
        from kgen.expressions import Value

        index = {let.name: k for k, let in enumerate(program.lets)}
        values = []
        for let in program.lets:
            name, attrs = let.expr.name, let.expr.attrs
            t = Float(frozenset({let.dtype.name})) if not let.is_number and let.dtype.is_float else let.dtype
            attr: Any = attrs if name == "gather" or name == "pick" or name in REDUCTIONS and attrs else attrs[0] if attrs else ""
            if name == "cast":
                attr = let.dtype.name
            op = {"load": "param", "arg": "param"}.get(name, name)
            args = tuple(index[o.name] for o in let.expr.operands)
            values.append(Value(op, args[:1] if op in ("argmax", "argmin") else args, attr, t, let.dims, let.span))
        stores = {s.result: index[s.ref] for s in program.stores}
        results = tuple(replace(r, value=stores[r.name]) for r in kernel.results)
        super().__init__(replace(kernel, values=tuple(values), results=results), arguments, "kernel")

    def value(self, v: Any, args: list) -> Any:
        if v.op == "lit" and v.type == FLOAT:
            from kgen.ir import exact

            text = str(v.attr)
            return float(text) if text in ("inf", "-inf", "nan") else float(exact(text))
        if v.op == "gather":
            return self.pick(v, *args)
        if v.op in ("max", "min") and v.attr and v.type is boolean:  # what `expand` makes of any and all, of no elements too
            v = replace(v, op="any" if v.op == "max" else "all")
        if v.op == "index" and v.attr == ELLIPSIS:  # a part of the position that goes into argmax; torch's own counts by itself
            return self.torch.zeros([1] * len(self.order), dtype=self.torch.int64)
        return super().value(v, args)


def rules_keep(kernel: Kernel, seed: int = 0, numbers: Sequence[int] = (0, 1)) -> Report:
    """Each rule alone, and `expand` after all of them: the program's results before and after, bit for bit; within the derived bound
    for the rules that state one."""
    import torch

    from kgen.expand import expand
    from kgen.lower import lower
    from kgen.rewrite import RULES, rewrite
    from kgen.testing.bounds import Analysis
    from kgen.types import resolve_named

    report = Report(kernel.name, "")
    for number in numbers:
        draw, arguments = drawn(kernel, seed, number)
        program = lower(kernel, {v: resolve_named(d, {}) for v, d in draw.binding.items()})
        with torch.no_grad():
            try:
                before = Interpreted(kernel, program, arguments).run()
                expected = Analysis(kernel, arguments, "cpp").results()
            except KgenError:  # a maximum of no elements
                continue
            for rule in RULES:
                after = Interpreted(kernel, rewrite(program, (rule,)), arguments).run()
                for r, a, b, want in zip(kernel.results, before, after, expected, strict=True):
                    if rule.keeps == "bits":
                        hold(same_bits(a, b), f"the rule {rule.name} changes {r.name} in case {number}: {differing(b, a)}")
                    else:
                        said = "" if _rough(kernel) else checks.compare(b, want, b, Report("", ""))
                        hold(not said, f"after the rule {rule.name}, {r.name} in case {number}: {said}")
                    report.elements += a.numel()
            expanded = Interpreted(kernel, expand(rewrite(program)), arguments).run()
            for r, b, want in zip(kernel.results, expanded, expected, strict=True):
                said = "" if _rough(kernel) else checks.compare(b, want, b, Report("", ""))
                hold(not said, f"after expanding, {r.name} in case {number}: {said}")
        report.cases += 1
    return report


def _rough(kernel: Kernel) -> bool:
    """Whether a kernel has a function for which torch's own keeps no bound in f32 (sinh and cosh overflow too soon); what torch
    evaluates is not held to one then."""
    return any(v.op in ("digamma", "lgamma", "erfinv", "sinh", "cosh") for v in kernel.values)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two tensors are equal bit for bit, NaN with whatever payload alike."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.dtype.is_floating_point:
        return bool((a == b).all())
    return bool(((a == b) & (a.signbit() == b.signbit()) | a.isnan() & b.isnan()).all())


def differing(got: Any, want: Any) -> str:
    """The first element in which two tensors differ."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
    bad = got != want
    if got.dtype.is_floating_point:
        bad = (bad | (got.signbit() != want.signbit())) & ~(got.isnan() & want.isnan())
    if not bool(bad.any()):
        return ""
    at = tuple(bad.nonzero()[0].tolist())
    return f"{got[at].item()!r} at {list(at)}, not {want[at].item()!r} ({int(bad.sum())} of {bad.numel()})"


# ------------------------------------------------------------------------------------------------ targets


def drawn(kernel: Kernel, seed: int, number: int) -> tuple[Any, dict[str, Any]]:
    """A case of `cases.Draw` and its arguments."""
    from kgen.testing.cases import Draw

    draw = Draw(kernel, seed, number)
    return draw, draw.written(draw.arguments())


def is_exact(kernel: Kernel) -> bool:
    """Whether every operator of a kernel gives the one right float on every target: none, or a single correct rounding, and no sum
    of floats, whose order is a target's own.  `fma` and `sqrt` are left out: torch has none, or none of f64 that is rounded right."""
    ops = {v.op for v in kernel.values}
    if ops & {*EITHER_ZERO} and ops & {"div", "pow", "atan2", "copysign", "signbit"}:  # which tell one zero from the other
        return False
    for v in kernel.values:
        if v.op in REDUCTIONS and v.attr:
            if v.op in ("sum", "prod", "mean") and isinstance(v.type, Float):
                return False
        elif v.op in OPS:
            row = OPS[v.op]
            rounded = all(row.spell(target).ulp == (0.5, 0.5) for target in TARGETS)
            if v.op in ("fma", "rsqrt", "sqrt") or is_float(v.type) and not rounded:
                return False
    return True


#: Which zero the greater of 0.0 and -0.0 is eager does not say: it differs from device to device.
EITHER_ZERO = ("max", "min", "clamp")


def agrees(kernel: Kernel, target: str = "torch", seed: int = 0, numbers: Iterable[int] = range(4), runnable: Any = None) -> Report:
    """A target's results within the derived bound of the exact ones, special values as eager has them; where every operator is exact
    bit for bit what the formula's reading on the CPU gives (but for the sign of a zero that EITHER_ZERO may choose)."""
    trial = Trial(kernel, target, runnable)
    report = Report(kernel.name, target)
    if target in ("cuda", "triton") and not any(p.is_tensor for p in kernel.params):
        return report  # whose results lie on the CPU
    exact = target != "torch" and is_exact(kernel)
    zeros = any(v.op in EITHER_ZERO for v in kernel.values)
    if target == "torch" and _rough(kernel):
        return report
    for number in numbers:
        _judged(trial, seed, number, report)
        if exact:
            got, arguments = results_of(trial.runnable, kernel, target, seed, number)
            if got is not None:
                for r, a, b in zip(kernel.results, got, Evaluator(kernel, arguments).run(), strict=True):
                    if zeros and a.is_floating_point():
                        a, b = a + 0.0, b + 0.0  # -0 + 0 is 0
                    hold(same_bits(a, b), f"{r.name} in case {number}, of exact operators alone: {differing(a, b)}")
    return report


def _judged(trial: Trial, seed: int, number: int, report: Report) -> None:
    """Hold a case of `kgen check`."""
    findings, arguments = trial.drawn(seed, number, None, report)
    if findings:
        raise Violation("\n".join(str(checks.Failure(trial, number, seed, arguments, f)) for f in findings[:3]))


def results_of(runnable: Any, kernel: Kernel, target: str, seed: int, number: int) -> tuple[list | None, dict[str, Any]]:
    """A target's results in a case (None where it has none to give), and the case's arguments."""
    import torch

    _, arguments = drawn(kernel, seed, number)
    device = "cpu" if target in ("cpp", "torch") else "cuda"
    written = [r.state for r in kernel.results if r.state]
    given = {k: checks._same_layout(a, device, k in written) if isinstance(a, torch.Tensor) else a for k, a in arguments.items()}
    try:
        with torch.no_grad():
            returned = runnable._run((), given, None, target)
    except KgenError:
        return None, arguments
    fresh = list(returned) if isinstance(returned, tuple) else [returned]
    return [(given[r.state] if r.state else fresh.pop(0)).cpu() for r in kernel.results], arguments


def rows_alone(kernel: Kernel, target: str = "torch", seed: int = 0, number: int = 0, runnable: Any = None) -> Report:
    """The kernel on a batch, and on each of a few of its rows alone: the same bits.  For kernels that reduce over `...`, or have none,
    there is nothing to hold, nor for `torch`, whose functions give the last elements of a tensor by other code than the first."""
    import torch

    from kgen.runtime.kernel import Kernel as Runnable

    report = Report(kernel.name, target)
    over = {d for v in kernel.values if (v.op == "pick" or v.op in REDUCTIONS and v.attr) for d in v.attr}
    leading = any(ELLIPSIS in (p.dims or ()) for p in kernel.params)
    whole = all(ELLIPSIS in r.dims for r in kernel.results)
    evaluated = target == "torch" and runnable is None
    if evaluated or not leading or not whole or ELLIPSIS in over or any(v.op == "size" and v.attr == ELLIPSIS for v in kernel.values):
        return report
    runnable = runnable or Runnable(kernel)
    device = "cpu" if target in ("cpp", "torch") else "cuda"
    rnd = random.Random(f"rows {seed} {number}")
    generator = torch.Generator().manual_seed(rnd.getrandbits(60))
    bindings = kernel.bindings()
    binding = {v: d.name for v, d in bindings[number % len(bindings)].items()}
    # rows of whole 16 bytes: on a GPU the alignment of others is a part of what they are
    sizes = {d: 16 * rnd.choice((1, 2, 4, 8, 33)) for p in kernel.params for d in p.dims or () if d != ELLIPSIS}
    while len(sizes) > 1 and sum(n > 16 for n in sizes.values()) > 1:
        sizes[max(sizes, key=lambda d: sizes[d])] = 16
    batch = rnd.choice((2, 3, 37))
    arguments: dict[str, Any] = {}
    for p in kernel.params:
        if p.dims is None:
            arguments[p.name] = 2 if p.dtype == "int" else 0.75
        else:
            shape = [n for d in p.dims for n in ([batch] if d == ELLIPSIS else [sizes[d]])]
            arguments[p.name] = _filled(shape, p.dtype, binding, generator)

    def run(at: int | None) -> list:
        given = {}
        for p in kernel.params:
            x = arguments[p.name]
            if at is not None and ELLIPSIS in (p.dims or ()):
                x = x[at : at + 1]
            given[p.name] = x.clone().to(device) if isinstance(x, torch.Tensor) else x
        with torch.no_grad():
            returned = runnable._run((), given, None, target)
        fresh = list(returned) if isinstance(returned, tuple) else [returned]
        return [(given[r.state] if r.state else fresh.pop(0)).cpu() for r in kernel.results]

    together = run(None)
    for at in {0, batch - 1, rnd.randrange(batch)}:
        for r, alone, among in zip(kernel.results, run(at), together, strict=True):
            said = differing(alone, among[at : at + 1])
            hold(not said, f"row {at} of {batch}, {r.name}, sizes {sizes}, {binding}: alone {said}, among others")
            report.elements += alone.numel()
    report.cases = 1
    return report


def _filled(shape: list[int], dtype: str, binding: dict[str, str], generator: Any) -> Any:
    import torch

    from kgen.types import resolve_named

    declared = resolve_named(dtype, binding)
    if declared.is_float:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(getattr(torch, declared.torch))
    if declared.kind == "bool":
        return torch.rand(shape, generator=generator) < 0.5
    return torch.randint(0, 20, shape, generator=generator).to(getattr(torch, declared.torch))


# ------------------------------------------------------------------------------------------------ gradients


def in_float64(kernel: Kernel) -> Kernel:
    """The kernel with f64 in place of every other float dtype that it names."""

    def kind(t: syntax.Type) -> syntax.Type:
        return replace(t, dtype=replace(t.dtype, name="f64")) if t.dims is not None and t.dtype.name in narrow else t

    def body(root: Expr) -> Expr:
        made: dict[int, Expr] = {}
        for node in syntax.postorder(root):
            if isinstance(node, Apply):
                op = "f64" if node.op in narrow else node.op
                made[id(node)] = replace(node, op=op, args=tuple(made[id(a)] for a in node.args))
            else:
                made[id(node)] = node
        return made[id(root)]

    narrow = ("f16", "bf16", "f32")
    statements: list[syntax.Statement] = []
    for s in kernel.file.statements:
        if isinstance(s, Header):
            params = tuple(replace(p, type=kind(p.type)) for p in s.params)
            statements.append(replace(s, params=params, results=tuple(replace(r, type=kind(r.type)) for r in s.results)))
        else:
            statements.append(replace(s, body=body(s.body)))
    text = typeset.format_file(replace(kernel.file, statements=tuple(statements), comments=()))
    return checker.check(syntax.parse(text, kernel.file.source.name))


def backward_agrees(kernel: Kernel, seed: int = 0) -> Report:
    """The backward that is derived, once with values that the forward saves and once computed anew, beside autograd's gradients of
    the formula, all floats in float64 at a random point.

    A wrong rule differs in the first digits.  Where gradients are ill-conditioned (those of the point moved by 1e-11 differ), near
    kinks, and where they are not finite, there is nothing to compare.
    """
    import torch

    from kgen import grad

    report = Report(kernel.name, "torch")
    wide = in_float64(kernel)
    if not grad.differentiable(wide) or any(v.op == "floordiv" and isinstance(v.type, Float) for v in wide.values):
        return report  # torch's floor_divide has no derivative
    rnd = random.Random(f"point {seed}")
    given = _point(wide, rnd)
    generator = torch.Generator().manual_seed(seed)
    results = dict(zip((r.name for r in wide.results), Evaluator(wide, given, "exact").run(), strict=True))
    if not all(bool(torch.isfinite(y).all()) for y in results.values() if y.is_floating_point()):
        return report
    cotangents = {n: torch.randn(y.shape, generator=generator, dtype=torch.float64) for n, y in results.items() if y.is_floating_point()}
    want = _autograd(wide, given, cotangents)
    moved: list[dict[str, Any]] = []
    for save in (True, False):
        made = grad.backward(wide, save=save)
        if made.saved:  # integers and numbers become f32 where they meet: what is saved of them is to be f64 here too
            made = replace(made, kernel=in_float64(made.kernel), forward=in_float64(made.forward))
        got = _derived(made, given, cotangents)
        if _gradients_differ(got, want, moved):
            moved = moved or [_autograd(wide, _near(given, k), cotangents) for k in (1, 2, 3)]
            said = _gradients_differ(got, want, moved)
            hold(not said, f"with{'' if save else 'out'} savings {said}\n{made.kernel.file.source.text}")
        report.cases += 1
        report.elements += sum(x.numel() for x in want.values())
    return report


def _point(kernel: Kernel, rnd: random.Random) -> dict[str, Any]:
    """Arguments in general position, of few elements."""
    import torch

    from kgen.runtime.arguments import default

    generator = torch.Generator().manual_seed(rnd.getrandbits(60))
    sizes = {d: rnd.choice((2, 3, 3, 4, 1)) for p in kernel.params for d in p.dims or () if d != ELLIPSIS}
    lead = rnd.choice(([2, 3], [3], [2], []))
    given: dict[str, Any] = {}
    for p in kernel.params:
        if p.dims is None:
            given[p.name] = default(p) if p.default is not None else 1 if p.dtype == "int" else 0.3
            continue
        shape = [n for d in p.dims for n in (lead if d == ELLIPSIS else [sizes[d]])]
        if is_variable(p.dtype) or p.dtype not in DTYPES or DTYPES[p.dtype].is_float:
            given[p.name] = torch.randn(shape, generator=generator, dtype=torch.float64)
        else:
            given[p.name] = torch.randint(0, 2, shape, generator=generator).to(getattr(torch, DTYPES[p.dtype].torch))
    return given


def _near(given: dict[str, Any], seed: int) -> dict[str, Any]:
    """The point moved by a little."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return {
        n: x * (1 + 1e-11 * torch.randn(x.shape, generator=generator, dtype=torch.float64)) if _is_float(x) else x for n, x in given.items()
    }


def _is_float(x: Any) -> bool:
    import torch

    return isinstance(x, torch.Tensor) and x.is_floating_point()


class _Differentiated(Evaluator):
    """The formula as autograd can differentiate it: the derivative of torch's clamp fails where its operands broadcast."""

    def operate(self, v: Any, args: list) -> Any:
        if v.op != "clamp":
            return super().operate(v, args)
        tensors = [a if isinstance(a, self.torch.Tensor) else self.number(a, k, v, args) for k, a in enumerate(args)]
        common = self.common(v)
        return self.torch.clamp(*(t.to(common).contiguous() for t in self.torch.broadcast_tensors(*tensors)))


def _autograd(kernel: Kernel, given: dict[str, Any], cotangents: dict[str, Any]) -> dict[str, Any]:
    """Autograd's gradients of the formula, operator by operator."""
    import torch

    leaves = {n: x.detach().clone().requires_grad_() if _is_float(x) else x for n, x in given.items()}
    results = dict(zip((r.name for r in kernel.results), _Differentiated(kernel, leaves, "exact").run(), strict=True))
    live = {n: y for n, y in results.items() if n in cotangents and y.requires_grad}
    wanted = {n: x for n, x in leaves.items() if _is_float(x)}
    if not live:
        return {n: torch.zeros_like(x) for n, x in wanted.items()}
    found = torch.autograd.grad(list(live.values()), list(wanted.values()), [cotangents[n] for n in live], allow_unused=True)
    return {n: torch.zeros_like(x) if g is None else g.detach() for (n, x), g in zip(wanted.items(), found, strict=True)}


def _derived(made: Any, given: dict[str, Any], cotangents: dict[str, Any]) -> dict[str, Any]:
    """The gradients of a derived backward, its kernels evaluated in float64."""
    import torch

    forward = dict(zip((r.name for r in made.forward.results), Evaluator(made.forward, given, "exact").run(), strict=True))
    took = {made.cotangents[n]: d for n, d in cotangents.items() if n in made.cotangents}
    took |= {n: given[n] for n in made.takes} | {n: forward[n] for n in made.saved}
    found = dict(zip((r.name for r in made.kernel.results), Evaluator(made.kernel, took, "exact").run(), strict=True))
    return {n: found[made.gradients[n]] if n in made.gradients else torch.zeros_like(x) for n, x in given.items() if _is_float(x)}


def _gradients_differ(got: dict[str, Any], want: dict[str, Any], moved: list[dict[str, Any]]) -> str:
    """Where gradients differ by more than float64's rounding, and by more than they move between points that are near."""
    import torch

    for n, b in want.items():
        a = got[n]
        ok = torch.isfinite(b) & (b.abs() < 1e8)
        noise = torch.zeros_like(b)
        for other in moved:
            ok = ok & torch.isfinite(other[n])
            noise = torch.maximum(noise, (other[n] - b).abs().nan_to_num(torch.inf))
        if not b.numel() or not bool(ok.any()):
            continue
        scale = torch.where(ok, b.abs(), 0.0).max()
        if moved:
            noise = torch.maximum(noise, noise.nan_to_num(posinf=0.0).max() * 1e-3)
        error = torch.where(ok, (a - b).abs().nan_to_num(torch.inf), 0.0)
        bad = error > 1e-8 * (1 + b.abs()) + 1e-10 * scale + noise
        if bool(bad.any()):
            at = tuple(bad.nonzero()[0].tolist())
            return f"d{n}{list(at)} is {a[at].item():.10g}, autograd's {b[at].item():.10g}"
    return ""


def gradients_agree(kernel: Kernel, target: str = "torch", seed: int = 0, numbers: Iterable[int] = range(2), saving: Any = None) -> Report:
    """The gradients as training has them on a target, within the bound of the backward that computes all anew."""
    from kgen import grad

    report = Report(f"{kernel.name}_backward", target)
    if not grad.differentiable(kernel) or target == "torch" and _rough(kernel):
        return report
    saving = saving or checks.Saving(kernel)
    trial = Trial(saving.anew.kernel, target, saving)
    for number in numbers:
        _judged(trial, seed, number, report)
    return report


#: The properties that run nothing on a target, and those that do, in the order in which a campaign looks at them.
ALONE: dict[str, Callable[..., Report]] = {
    "prints_and_parses": prints_and_parses,
    "renders": renders,
    "renames": renames,
    "rules_keep": rules_keep,
    "backward_agrees": backward_agrees,
}
ON_TARGET: dict[str, Callable[..., Report]] = {"agrees": agrees, "gradients_agree": gradients_agree, "rows_alone": rows_alone}

__all__ = [
    "ALONE", "ON_TARGET", "Interpreted", "Violation", "agrees", "backward_agrees", "gradients_agree", "in_float64", "prints_and_parses",
    "renamed", "renames", "renders", "rows_alone", "rules_keep", "same_bits", "structure", "written",
]  # fmt: skip
