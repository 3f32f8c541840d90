"""An ordinary Python function to a checked kernel: what stands behind `@kgen.kernel`.

In: a function.  Out: a `kgen.check.Kernel`, the same that the spec gives which says the same.  The function never runs: its
source is read as a spec is, so that every error points at the Python line.  The parameters' annotations are the spec's types
(`x: "T[..., N]"`, `eps: float = 1e-5`); local names are the equations' names; what is returned is the result, named by the
return annotation (`-> "y: T[..., N]"`, several in brackets, `p'` for one written in place) or by itself.

A function may use kgen's own names (`exp(x)`, `sum["N"](x)`, `index["N"]`, `T(x)`) and torch's (`torch.exp(x)`, `F.silu(g)`,
`x.mean(-1, keepdim=True)`).  Once a name of torch's stands in it, dims must meet as torch pairs them, from the right: what
would mean something else by name is refused.  Plain functions that it calls are traced too, and what it finds outside (numbers,
bools, strings, dtypes) is taken as it is when the function is defined.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Annotated, Any

from kgen import check as checker
from kgen import syntax, typeset
from kgen.errors import Diagnostic, KgenError, Span, printed
from kgen.ops import CONSTANTS
from kgen.optional import NONE, choices, is_none, optional
from kgen.syntax import Apply, Clause, Equation, File, Header, Name, Num, Param, Result, Type
from kgen.trace.axes import MOST_SPLITS, ONE, Axis, Restart, Splits, each, show_shape
from kgen.trace.clauses import moved_clause, moved_type, shifted, where_span
from kgen.trace.live import Lives, Owner
from kgen.trace.source import Code, code_of
from kgen.trace.statements import Statements
from kgen.trace.tracer import Refused, in_python, renamed
from kgen.trace.values import Const, Several, Traced, dtype_name, named
from kgen.types import DTYPES, Number, axes, union

#: Parameters of a function that may be None: it is read once for each choice of them.
MAX_NONE = 4
_OR_NONE = re.compile(r"\s*\|\s*None\s*$")


def trace(function: Callable[..., Any], lives: Lives | None = None, where: str = "") -> checker.Kernel:
    """The kernel of a Python function.  `lives` has the object of a method, and is told what it reads of it; `where` says what a header's
    does (`P = (M + 127) // 128 * 128`).  Raises `KgenError` with all errors, each at its Python line."""
    function = getattr(function, "__func__", function)  # a static method
    if not isinstance(function, FunctionType):
        raise KgenError(f"{function!r} is not a plain Python function", help="decorate a function written with `def`")
    code = code_of(function)
    splits = Splits()
    try:
        for _ in range(MOST_SPLITS):
            try:
                return checker.check(_with_absent(code, splits, lives, where))
            except Restart:
                continue
        help = "write the parts into the annotations, as in `T[..., 2*D]`"
        raise KgenError(f"`{function.__name__}` splits its dims in too many ways", help=help)
    except RecursionError:
        raise KgenError(f"`{function.__name__}` holds an expression that is too deep", help="give parts of it names of their own") from None
    except KgenError as error:
        raise (in_python(error) if error.source == code.source else error) from None


def _with_absent(code: Code, splits: Splits, lives: Lives | None, where: str) -> File:
    """A function's syntax tree, with those of each choice of its tensors that are None; `splits` are the splits of its dims that are known,
    `lives` what it reads of its object, `where` its header's clauses.  Raises `KgenError` with the errors of one of them."""
    whole = _Function(code, splits, lives and lives.anew(), where).file()
    nones = [p for p in optional(whole) if is_none(p)]
    if len(nones) > MAX_NONE:
        raise KgenError(Diagnostic(f"more than {MAX_NONE} parameters may be None", nones[-1].span), code.source)
    made: dict[frozenset[str], File] = {}
    for names in reversed([(), *choices([p.name.name for p in nones])]):
        own = frozenset(names)
        try:
            file = _Function(code, splits, lives and lives.anew(), where, own).file() if names else whole
            made[own] = replace(file, absent={more - own: of for more, of in made.items() if own < more})
            checker.check(made[own])
        except KgenError as error:
            said = f"where {' and '.join(f'`{name}`' for name in names)} {'is' if len(names) == 1 else 'are'} None: " * bool(names)
            raise KgenError([replace(d, message=said + d.message) for d in error.diagnostics], error.source) from None
    return made[frozenset()]


@dataclass(frozen=True, eq=False)
class TracedFile(File):
    """The syntax tree of a traced function: its source is Python, its documentation the docstring."""

    docstring: str = ""

    def doc(self) -> str:
        return self.docstring


def to_spec(kernel: checker.Kernel) -> str:
    """The text of a .k file that means the same as a kernel."""
    file = kernel.file
    if not isinstance(file, TracedFile):
        return typeset.format_file(file)
    lines = [f"# {line}".rstrip() for line in kernel.doc.split("\n")] if kernel.doc else []
    lines += [typeset.format_statement(s) for s in file.statements]
    return typeset.format_file(syntax.parse("\n".join(lines), f"{kernel.name}.k"))


class _Function(Statements):
    def __init__(self, code: Code, splits: Splits, lives: Lives | None, where: str, absent: frozenset[str] = frozenset()):
        """`where` has the header's clauses; `absent` are the parameters that are None."""
        super().__init__(code, splits, lives)
        self.absent, self.where = absent, where

    def file(self) -> File:
        """The whole function as a syntax tree."""
        node, source = self.code.node, self.code.source
        start = self.code.offset(node.lineno, node.col_offset)
        name = Name(node.name, self.code.word(Span(start, self.code.offset(node.end_lineno or 0, node.end_col_offset or 0)), node.name))
        params = [p for p in self.params() if p is not None]
        declared = self.declared_results()
        self.take_sizes()
        self.declare(params)
        self.declare_sizes(params)
        found: Any = None
        try:
            found = self.run(node.body)
        except Refused:
            pass
        else:
            if (found is None or self.is_none(found)) and not self.scout.errors.found:
                self.scout.errors.add(f"`{node.name}` returns nothing", name.span, help="return the results")
        self.raise_any()
        assert isinstance(node, ast.FunctionDef)  # a coroutine is refused when its source is read
        results = self.results(found, declared, node)
        self.raise_any()
        kinds = [*(p.type for p in (*params, *self.live_params)), *(r.type for r in results)]
        self.name_literals({d.name for t in kinds for d in t.dims or ()}, name.span)
        params += [*self.read_params(), *self.drawn_params]
        clauses = tuple(self.clauses.values())
        header = Header(name, tuple(params), tuple(results), Span(name.span.start, self.header_end()), clauses)
        doc = printed(inspect.cleandoc(ast.get_docstring(node, clean=False) or "").strip())
        return TracedFile(source, (header, *self.helpers.values(), *self.equations), docstring=doc)

    def name_literals(self, declared: set[str], span: Span) -> None:
        """Give names to the literal dims that equations have and no parameter and no result (`topk(x, 3)` that is summed)."""
        held = {d.name for e in self.equations for n in syntax.postorder(e.body) if isinstance(n, Apply) for d in n.dims or ()}
        made = {d: self.new_dim("K", d, span) for d in sorted(held - declared) if d.isdigit()}

        def renamed_dims(n: Any) -> Any:
            if isinstance(n, Apply) and n.dims and any(d.name in made for d in n.dims):
                return replace(n, dims=tuple(replace(d, name=made.get(d.name, d.name)) for d in n.dims))
            return n

        if made:
            self.equations = [replace(e, body=syntax.rebuilt(e.body, renamed_dims)) for e in self.equations]

    def read_params(self) -> list[Param]:
        """The parameters made of attributes, but for numbers that nothing reads (a dropout's probability in evaluation)."""
        read = {n.name for e in self.equations for n in syntax.postorder(e.body) if isinstance(n, Name)}
        gone = {p.name.name for p in self.live_params if p.type.dims is None} - read
        if self.lives is not None:
            self.lives.params = {path: live for path, live in self.lives.params.items() if live.name not in gone}
        return [p for p in self.live_params if p.name.name not in gone]

    def header_end(self) -> int:
        node = self.code.node
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        return self.code.span(node.returns or arguments[-1]).end

    # ------------------------------------------------------------------------------------------ sizes

    def take_sizes(self) -> None:
        """Take the clauses that the decorator says, and those of literals that the splits of dims gave names; what is wrong with them is an
        error."""
        here = self.code.span(self.code.node)
        self.clauses |= {n: Clause(Name(n, here), Num(str(size), here), here) for n, size in self.splits.named.items()}
        if self.where:
            span = where_span(self.code, self.where)
            at = span.start if self.code.source.text[span.start : span.end] == self.where else -1
            try:
                self.parsed("k(x: f32[]) -> y: f32[] where ", self.where, "", at, span)
            except Refused:
                pass

    def declare_sizes(self, params: list[Param]) -> None:
        """Take the clauses into the scout: its dims are those that they name too."""
        span = self.code.span(self.code.node)
        header = Header(Name(self.code.node.name, span), tuple(params), (), span, tuple(self.clauses.values()))
        for name in self.scout.values_of_dims(header):
            self.scout.dims.setdefault(name.name, name.span)
        self.scout.check_clauses(header)

    # ------------------------------------------------------------------------------------------ parameters

    def params(self) -> list[Param | None]:
        args = self.code.node.args
        for extra, sign in ((args.vararg, "*"), (args.kwarg, "**")):
            if extra is not None:
                self.scout.errors.add(f"a kernel has a fixed number of parameters, not `{sign}{extra.arg}`", self.code.span(extra))
        positional = [*args.posonlyargs, *args.args]
        defaults = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
        if self.lives is not None and positional:
            self.frame.env[positional[0].arg] = Owner(self.lives.owner, "")
            del positional[0], defaults[0]
        pairs = [*zip(positional, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        if not pairs:
            self.scout.errors.add("a kernel needs a parameter", self.code.word(self.code.span(self.code.node), self.code.node.name))
        return [self.param(arg, default) for arg, default in pairs]

    def param(self, arg: ast.arg, default: ast.expr | None) -> Param | None:
        """A parameter as a header declares it; None where it is wrong, with an error, or where it is one that is absent."""
        span = self.code.span(arg)
        name_span = Span(span.start, span.start + len(arg.arg))
        if arg.arg in self.absent:
            self.frame.env[arg.arg] = Const(None)
            return None
        try:
            if not arg.arg.isascii() or len(arg.arg) > syntax.MAX_NAME:
                raise self.refuse(f"`{arg.arg}` cannot name a parameter", name_span, "names are ASCII, and of at most 64 characters")
            text = self.default(arg, default) if default is not None else NONE if _or_none(arg.annotation)[1] else None
            kind = self.param_type(arg, text, name_span)
        except Refused:
            self.frame.env[arg.arg] = self.poison(name_span)
            return None
        kind = self.with_ones(arg.arg, self.split_type(kind))
        where = self.code.span(default) if default is not None else span
        made = None if text is None else syntax.literal(text, where)
        return Param(Name(arg.arg, name_span), kind, made, Span(span.start, where.end))

    def param_type(self, arg: ast.arg, default: str | None, span: Span) -> Type:
        """The type of a parameter, by its annotation, or by its default where that is a number.  Refuses what is no type of kgen's."""
        name, (note, _) = arg.arg, _or_none(arg.annotation)
        advice = f'write its type, as in `{name}: "T[..., N]"` (a tensor) or `{name}: float` (a number)'
        if note is None:
            if default is not None:
                return Type(Name("int" if re.fullmatch(r"[+-]?[0-9]+", default) else "float", span), None, span)
            if name in ("self", "cls"):
                raise self.refuse(f"a kernel has no `{name}`", span, "put `@staticmethod` above `@kgen.kernel`, and pass what it needs")
            raise self.refuse(f"parameter `{name}` has no type", span, advice)
        if isinstance(note, ast.Constant) and isinstance(note.value, str) and ("[" in note.value or note.value in ("float", "int")):
            span = self.code.span(note)  # spans lie inside the quotes, where the text stands there as it is
            written = _OR_NONE.sub("", note.value)
            return self.parsed_type(written, self.code.source.text.find(written, span.start, span.end), span)
        if (said := self.alias(note)) is not None:
            return self.parsed_type(said, -1, self.code.span(note))
        if (inner := self.annotated(note)) is not None:
            span = self.code.span(inner)
            said = _OR_NONE.sub("", str(inner.value))
            return self.parsed_type(said, self.code.source.text.find(said, span.start, span.end), span)
        text = self.code.text(note)
        if isinstance(note, ast.Subscript) and self.outside(text.partition("[")[0].strip()) is None:
            return self.parsed_type(text, self.code.span(note).start, self.code.span(note))
        if text in ("float", "int"):
            return Type(Name(text, self.code.span(note)), None, self.code.span(note))
        if text in ("bool", "str"):
            help = "numbers are `float` or `int`; a choice made once is a constant outside the function"
            raise self.refuse(f"`{name}` cannot be a {text}: a kernel's parameters are tensors and numbers", note, help)
        raise self.refuse(f"`{text}` does not say the dtype and dims of `{name}`", note, advice)

    def annotated(self, note: ast.expr | None) -> ast.Constant | None:
        """The text of `Annotated[torch.Tensor, "T[..., N]"]`; None of other annotations."""
        if not isinstance(note, ast.Subscript) or not isinstance(note.slice, ast.Tuple):
            return None
        head = note.value.attr if isinstance(note.value, ast.Attribute) else note.value.id if isinstance(note.value, ast.Name) else ""
        known = self.outside(head) if isinstance(note.value, ast.Name) else None
        if head != "Annotated" and not (known is not None and known[0] is Annotated):
            return None
        texts = (e for e in note.slice.elts[1:] if isinstance(e, ast.Constant) and isinstance(e.value, str))
        return next((e for e in texts if "[" in str(e.value) or e.value in ("float", "int")), None)

    def alias(self, note: ast.expr) -> str | None:
        """The text of an `Annotated` type that has a name of its own outside the function."""
        known = self.outside(note.id) if isinstance(note, ast.Name) else None
        texts = getattr(known[0], "__metadata__", ()) if known is not None else ()
        return next((t for t in texts if isinstance(t, str) and "[" in t), None)

    def split_type(self, kind: Type) -> Type:
        """A type in which the dims that the function splits are split."""
        if kind.dims is None:
            return kind
        self.splits.taken |= {d.name for d in kind.dims}
        known = {d.name: d for d in kind.dims}
        by_axis = axes(syntax.dim_names(kind.dims), kind.factors)
        found = [[known.get(p, Name(p, known[d].span)) for d in axis for p in self.splits.expand((d,))] for axis in by_axis]
        factors = tuple(map(len, found)) if any(len(axis) > 1 for axis in found) else ()
        return replace(kind, dims=tuple(d for axis in found for d in axis), factors=factors)

    def with_ones(self, name: str, kind: Type) -> Type:
        """A parameter's type in which each axis of size one behind the first (`T[1, C, 1, 1]`) has a dim with a name of its own."""
        ones = [k for k, d in enumerate(kind.dims or ()) if d.name == "1"][1:]
        if not ones or kind.dims is None:
            return kind
        taken = {*self.scout.dims, *self.clauses, *(a.arg for a in ast.walk(self.code.node.args) if isinstance(a, ast.arg))}
        made = [Name(self.splits.one(name, k, taken), d.span) if k in ones else d for k, d in enumerate(kind.dims)]
        return replace(kind, dims=tuple(made))

    def parsed_type(self, text: str, at: int, span: Span) -> Type:
        head = "k(x: "
        header = self.parsed(head, text, ") -> y: f32[]", at, span)
        if len(header.params) != 1 or header.params[0].default is not None:
            raise self.refuse("this is not one type", span, "write the spec's type, as in `T[..., N]`; a default stands behind `=`")
        return moved_type(header.params[0].type, at - len(head), span if at < 0 else None)

    def parsed(self, head: str, text: str, tail: str, at: int, span: Span) -> Header:
        """A piece of a header from an annotation, whose clauses are taken; its errors at their place in the Python text."""
        if not text.strip():
            raise self.refuse("this annotation is empty", span, 'as in `"T[..., N]"`')
        try:
            header = next(s for s in syntax.parse(head + text + tail, self.code.source.name).statements if isinstance(s, Header))
            for c in header.clauses:
                clause = moved_clause(c, at - len(head), span if at < 0 else None)
                if not clause.inline and c.name.name in self.clauses:
                    self.scout.errors.add(f"the size of {c.name.name} is given twice", clause.name.span, help="a dim has one clause")
                self.clauses.setdefault(c.name.name, clause)
            return header
        except KgenError as error:
            for d in error.diagnostics:
                place, message, help = span, d.message, d.help
                if tail and d.span is not None and d.span.start >= len(head) + len(text):
                    message, help = "this annotation ends too early", "as in `T[..., N]`"
                if at >= 0 and d.span is not None and len(head) <= d.span.start < len(head) + len(text):
                    end = min(d.span.end, len(head) + len(text))
                    place = Span(d.span.start - len(head) + at, end - len(head) + at)
                self.scout.errors.add(message, place, d.label, help)
            raise Refused from None

    def default(self, arg: ast.arg, node: ast.expr) -> str:
        """A default's text: as it is written, or what it was when the function was defined."""
        name = arg.arg
        text = self.code.text(node).replace(" ", "").replace("_", "")
        plain = text.lstrip("+-")
        if re.fullmatch(r"0[xX][0-9a-fA-F]+|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", plain) and len(plain) <= syntax.MAX_DIGITS:
            return text
        value = inspect.signature(self.code.function).parameters[name].default
        if value is None and "[" in ast.unparse(arg.annotation or node):
            return NONE
        if isinstance(value, (bool, str)):
            kind, help = type(value).__name__, "a choice made once is a constant outside the function"
            raise self.refuse(f"`{name}` cannot be a {kind}: a kernel's parameters are tensors and numbers", node, help)
        if not isinstance(value, (int, float)):
            raise self.refuse(f"the default of `{name}` is not a number", node, "a default is a number; a tensor's may be None")
        if math.isfinite(value):
            return repr(value)
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"

    def declare(self, params: list[Param]) -> None:
        """Take the parameters into the scout and the names of the function."""
        wrong = set[str]()
        for p in params:
            told = len(self.scout.errors.found)
            self.scout.declare_param(p)
            wrong |= {p.name.name} if len(self.scout.errors.found) > told else set()
            for d in p.type.dims or ():
                if d.name != "...":
                    self.scout.dims.setdefault(d.name, d.span)
        for p in params:
            name = p.name.name
            shape = tuple(map(Axis, axes(syntax.dim_names(p.type.dims), p.type.factors)))
            owner = name if p.type.dims is not None else ""
            made = Traced(Name(name, p.name.span), self.scout.names.get(name), shape, owner=owner)
            made = self.without_ones(made, p.name.span)
            self.frame.env[name] = self.poison(p.name.span) if name in wrong else made

    # ------------------------------------------------------------------------------------------ results

    def declared_results(self) -> list[tuple[str, Type | None, Span]] | None:
        """What the return annotation says: names (or ""), types (or None) and places; None where it says nothing."""
        note = self.code.node.returns
        if note is None or isinstance(note, ast.Constant) and note.value is None:
            return None
        if (inner := self.annotated(note)) is not None:
            note = inner
        elif isinstance(note, ast.Subscript) and isinstance(note.slice, ast.Tuple) and all(map(self.annotated, note.slice.elts)):
            found = [self.declared_in(e) for e in map(self.annotated, note.slice.elts) if e is not None]
            return [result for several in found for result in several or ()]
        return self.declared_in(note)

    def declared_in(self, note: ast.expr) -> list[tuple[str, Type | None, Span]] | None:
        """What one annotation declares: a text, or a type that is none of Python's."""
        if not (isinstance(note, ast.Constant) and isinstance(note.value, str)):
            if isinstance(note, ast.Subscript) and self.outside(self.code.text(note).partition("[")[0].strip()) is None:
                span = self.code.span(note)
                return [("", self.parsed_type(self.code.text(note), span.start, span), span)]
            return None
        span, text = self.code.span(note), note.value
        if "[" not in text:
            return None  # "torch.Tensor"
        at = self.code.source.text.find(text, span.start, span.end)
        try:
            if ":" in text:
                head, tail = ("k(x: f32[]) -> ", "") if text.strip().startswith("(") else ("k(x: f32[]) -> (", ")")
                header = self.parsed(head, text, tail, at, span)
                shift, fixed = at - len(head), span if at < 0 else None
                return [(r.name.name, moved_type(r.type, shift, fixed), shifted(r.name.span, shift, fixed)) for r in header.results]
            found: list[tuple[str, Type | None, Span]] = []
            for part in re.finditer(r"[^,\[\]()]*\[[^\]]*\][^,\[\]()]*|[^,()]+", text):
                if part.group().strip():
                    found.append(("", self.parsed_type(part.group(), at + part.start() if at >= 0 else -1, span), span))
            return found
        except Refused:
            return None

    def results(self, found: Any, declared: list[tuple[str, Type | None, Span]] | None, node: ast.FunctionDef) -> list[Result]:
        """The spec's results: what the function returned (`found`) beside what it declares, if it does; errors are noted, not raised."""
        last = max((n for n in ast.walk(node) if isinstance(n, ast.Return)), key=lambda n: n.lineno)
        items = list(found.items) if isinstance(found, Several) else [found]
        where: list[Any] = [last.value] * len(items)
        if isinstance(last.value, ast.Tuple) and len(last.value.elts) == len(items):
            where = list(last.value.elts)
        if declared is not None and len(declared) != len(items):
            self.scout.errors.add(
                f"{len(items)} {'value is' if len(items) == 1 else 'values are'} returned, {len(declared)} "
                f"{'result is' if len(declared) == 1 else 'results are'} declared",
                self.code.span(last),
                help="return a value for each, in their order",
            )
            return []
        values: list[Traced] = []
        for item, place in zip(items, where, strict=True):
            try:
                named_ = self.named_by_clauses(item, place) if isinstance(item, Traced) and self.clauses else item
                values.append(self.lift(named_, place, "what is returned"))
            except Refused:
                values.append(self.poison(self.code.span(place)))
        if any(v.id is None for v in values):
            return []
        wanted: list[tuple[str, Type | None, Span]] = declared or [("", None, self.code.span(p)) for p in where]
        names = self.final_names(values, [w[0] for w in wanted], where)
        made = []
        for name, (_, kind, span), value, place in zip(names, wanted, values, where, strict=True):
            try:
                made.append(Result(Name(name, span), self.result_type(name, kind, value, place), span))
            except Refused:
                continue
        return made

    def result_type(self, name: str, kind: Type | None, value: Traced, place: Any) -> Type:
        """A result's type: the declared one (`kind`), or the value's own dtype and dims.  Refuses what a result cannot be."""
        span = self.code.span(place)
        if (long := next((a for a in value.shape if a.short), None)) is not None:
            message = f"`{name}` is {show_shape(value.shape)}: the size {long} has no name"
            raise self.refuse(message, place, "a result's sizes are those of the parameters: pad it, as in `F.pad(y, (0, 1))`")
        if any(a.flat for a in value.shape):
            message = f"`{name}` has the leading dims `...` joined to one axis: {show_shape(value.shape)}"
            raise self.refuse(message, place, "give it its axes again, as in `y.view(x.shape)`")
        if ONE in value.shape and self.torch and not value.free:  # `keepdim=True`: a dim of one element
            ones = self.ones_of(value.shape.count(ONE), place)
            value = replace(value, shape=tuple(Axis((ones.pop(0),)) if a == ONE else a for a in value.shape))
        placed = self.torch and not value.free  # its dims stand in torch's order
        kind = self.split_type(kind) if kind is not None else None
        ours = each(union(self.dims_of(value))) if value.free else tuple(a for a in value.shape if a != ONE)
        if kind is not None:
            declared = tuple(map(Axis, axes(syntax.dim_names(kind.dims), kind.factors)))
            if placed and kind.dims is not None and declared != value.shape and not isinstance(self.type_of(value), Number):
                pairs = zip(declared, value.shape, strict=False)
                if len(declared) == len(value.shape) and any(self.splits.agree(a.dims, b.dims) for a, b in pairs):
                    raise Restart
                message = f"`{name}` is {show_shape(value.shape)} in torch, but declared {show_shape(declared)}"
                raise self.refuse(message, place, "declare what the function returns")
            return kind
        t = self.type_of(value)
        if isinstance(t, Number):
            raise self.refuse(f"`{name}` is a number, not a tensor", place, 'a 0-d tensor is declared, as in `-> "y: f32[]"`')
        assert t is not None
        dtype = dtype_name(t)
        if not dtype:
            help = f'declare it, as in `-> "{name}: f32{show_shape(ours)}"`, or cast it'
            raise self.refuse(f"the dtype of `{name}` is {t}", place, help)
        factors = tuple(len(a.dims) for a in ours) if any(len(a.dims) > 1 for a in ours) else ()
        return Type(Name(dtype, span), tuple(Name(d, span) for d in named(ours)), span, factors)

    def ones_of(self, count: int, place: Any) -> list[str]:
        """So many literal dims of one element, the first of which needs no name of its own."""
        found = ["1", *(d for d in self.scout.dims if d.startswith("1_"))]
        while len(found) < count:
            found.append(self.new_dim("P", "1", place))
        return found[:count]

    def final_names(self, values: list[Traced], declared: list[str], where: list[Any]) -> list[str]:
        """Names for the results, and through them and the equations for all: the last value of a name keeps it."""
        live, spare = self.live(values), self.live(self.spare)
        self.equations = [e for e in self.equations if e.name.name in live or not (e.name.name.startswith("_") or e.name.name in spare)]
        outer = {*self.scout.params, *self.scout.dims}
        taken = outer | {d for d in declared if d}
        final: dict[str, str] = {}
        names: list[str] = []
        for k, (value, name, place) in enumerate(zip(values, declared, where, strict=True)):
            internal = value.expr.name if isinstance(value.expr, Name) and "#" in value.expr.name and value.expr.name not in final else ""
            base = internal.partition("#")[0]
            if not name:
                stems = [base] * bool(base) + (["y", "out", "result"] if len(values) == 1 else [f"y{k + 1}"])
                name = next((s for s in stems if s not in taken and s not in CONSTANTS and s not in DTYPES), f"{stems[-1]}_")
            taken.add(name)
            names.append(name)
            if internal:
                final[internal] = name
            else:
                span = self.code.span(place)
                self.equations.append(Equation(Name(name, span), value.expr, span))
        left: dict[str, list[str]] = {}
        for e in self.equations:
            base, mark, _ = e.name.name.partition("#")
            if mark and e.name.name not in final:
                left.setdefault(base, []).append(e.name.name)
        for base, internals in left.items():
            if base not in taken or base in self.scout.dims:  # a dim cannot be assigned: the checker says so
                final[internals.pop()] = base
                taken.add(base)
        for base, internals in left.items():
            k = 1
            for internal in internals:
                while f"{base}_{k}" in taken:
                    k += 1
                final[internal] = f"{base}_{k}"
                taken.add(final[internal])
        self.equations = [
            Equation(replace(e.name, name=final.get(e.name.name, e.name.name)), renamed(e.body, final), e.span) for e in self.equations
        ]
        return names

    def live(self, values: list[Traced]) -> set[str]:
        """The equations that the results depend on."""
        bodies = {e.name.name: e.body for e in self.equations}
        found: set[str] = set()
        stack = [v.expr for v in values]
        while stack:
            for node in syntax.postorder(stack.pop()):
                if isinstance(node, Name) and node.name in bodies and node.name not in found:
                    found.add(node.name)
                    stack.append(bodies[node.name])
        return found


def _or_none(note: ast.expr | None) -> tuple[ast.expr | None, bool]:
    """An annotation without `| None`, and whether it had that."""
    if isinstance(note, ast.BinOp) and isinstance(note.op, ast.BitOr) and isinstance(note.right, ast.Constant) and note.right.value is None:
        return note.left, True
    return note, isinstance(note, ast.Constant) and isinstance(note.value, str) and bool(_OR_NONE.search(note.value))


__all__ = ["Apply", "Const", "Diagnostic", "Lives", "TracedFile", "to_spec", "trace"]
