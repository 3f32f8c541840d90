"""Tensors of which two elements share a byte: `f4e2m1`, `i4` and `u4`, the first one in the low half.

In: a file.  Out: the same file in which such a tensor has bytes, half as many along its last dim, which in all other tensors is split into
neighbours; its elements are read by shifts, and written as the two parts of a byte.  From here on nothing knows of packing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kgen.errors import Diagnostic, KgenError, Span
from kgen.nodes import Apply, Clause, Equation, Expr, File, Header, Name, Num, Param, Result, Statement, Type, folded, postorder
from kgen.ops import SCANS
from kgen.types import ELLIPSIS, PACKED, is_literal

_NOWHERE = Span(0, 0)


@dataclass(frozen=True)
class _Split:
    """A dim as two: `half`, of so many bytes, and `pair`, of two; `size` is its own where that is known (0: it is not)."""

    half: str
    pair: str
    size: int


def unpacked(file: File) -> File:
    """The file without packed tensors.  Raises `KgenError` where a packed tensor's last dim is none that has halves."""
    header = next((s for s in file.statements if isinstance(s, Header)), None)
    cast = any(isinstance(n, Apply) and n.op in PACKED and n.written == "call" for root in _roots(file) for n in postorder(root))
    every: list[Param | Result] = [*header.params, *header.results] if header is not None else []
    packed = {d.name.name: d for d in every if d.type.dims is not None and d.type.dtype.name in PACKED}
    if header is None or not packed and not cast:
        return file
    return _Unpacking(file, header, packed).file()


def _roots(file: File) -> list[Expr]:
    """The expressions of a file's equations."""
    return [root for s in file.statements if isinstance(s, Equation) for root in (s.body, *s.places)]


def _call(op: str, *args: Expr, dims: tuple[Name, ...] | None = None, written: str = "call", span: Span = _NOWHERE) -> Apply:
    return Apply(op, args, span, span, written, dims)


def _infix(op: str, a: Expr, b: Expr) -> Apply:
    return _call(op, a, b, written="infix", span=a.span)


class _Unpacking:
    def __init__(self, source: File, header: Header, packed: dict[str, Param | Result]):
        self.source, self.header, self.packed = source, header, packed
        self.taken = {*packed} | {p.name.name for p in header.params} | {c.name.name for c in header.clauses}
        declared: list[Param | Result] = [*header.params, *header.results]
        self.taken |= {d.name for x in declared for d in x.type.dims or ()} | {s.name.name for s in source.statements}
        self.splits: dict[str, _Split] = {}
        for d in packed.values():
            self.split(d)
        self.values = {r.name.name: self.fresh(f"{r.name.name}_values") for r in header.results if r.name.name in packed}

    def fresh(self, name: str) -> str:
        """A name that the file has not."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def wrong(self, message: str, span: Span, help: str = "") -> KgenError:
        return KgenError(Diagnostic(message, span, help=help), self.source.source)

    def split(self, d: Param | Result) -> None:
        """Split the last dim of a packed tensor."""
        dtype, dims = d.type.dtype, d.type.dims or ()
        if not dims or dims[-1].name == ELLIPSIS or d.name.name.endswith("'"):
            message = f"two elements of {dtype.name} share a byte: `{d.name.name}` needs a named last dim, and is not written in place"
            span = dims[-1].span if dims else d.type.span
            raise self.wrong(message, span, help=f"declare it `{d.name.name}: {dtype.name}[..., N]`")
        last = dims[-1]
        if last.name in self.splits:
            return
        clause = next((c for c in self.header.clauses if c.name.name == last.name), None)
        known = clause.value.text if clause is not None and isinstance(clause.value, Num) else last.name if is_literal(last.name) else ""
        size = int(known.partition("_")[0]) if known else 0
        if clause is not None and not known or size % 2:
            raise self.wrong(f"{last.name} has no halves, and two elements of {dtype.name} share a byte", last.span,
                             help="the last dim of such a tensor is open, or an even number")  # fmt: skip
        stem = last.name if last.name[0].isalpha() else f"D{last.name}"
        self.splits[last.name] = _Split(self.fresh(f"{stem}_half"), self.fresh(f"{stem}_pair"), size)

    # ------------------------------------------------------------------ the header

    def file(self) -> File:
        """The file that is made."""
        statements = [new for s in self.source.statements for new in self.statement(s)]
        for name, value in self.values.items():
            statements.append(self.written(name, value))
        halves = {name: dim for dim, split in self.splits.items() for name in (split.half, split.pair)}
        return replace(self.source, statements=tuple(statements), halves=halves, header=self.header)

    def statement(self, s: Statement) -> list[Statement]:
        """What a statement becomes."""
        if isinstance(s, Header):
            params = tuple(replace(p, type=self.type(p), default=None if p.default is None else self.body(p.default)) for p in s.params)
            results = tuple(replace(r, type=self.type(r)) for r in s.results)
            kept = tuple(c for c in s.clauses if c.name.name not in self.splits)
            return [replace(s, params=params, results=results, clauses=kept + self.clauses())]
        if not isinstance(s, Equation):
            return [s]
        dims, places = self.place_dims(s.dims, tuple(map(self.body, s.places)), s.span)
        return [replace(s, name=self.renamed(s.name), body=self.body(s.body), dims=dims, places=places)]

    def clauses(self) -> tuple[Clause, ...]:
        """The sizes of the halves, where they are known, and of pairs."""
        made = []
        for split in self.splits.values():
            for name, size in ((split.half, split.size // 2), (split.pair, 2)):
                made += [Clause(Name(name, _NOWHERE), Num(str(size), _NOWHERE), _NOWHERE)] if size else []
        return tuple(made)

    def type(self, d: Param | Result) -> Type:
        """A declared type: of a packed tensor the bytes, of others dims that are split."""
        t = d.type
        if t.dims is None:
            return t
        ends = t.factors or (1,) * len(t.dims)
        own = d.name.name in self.packed
        dims, factors, at = list[Name](), list[int](), 0
        for count in ends:
            axis = [new for k, x in enumerate(t.dims[at : at + count]) for new in self.dim(x, own and at + k == len(t.dims) - 1)]
            dims, factors, at = [*dims, *axis], [*factors, len(axis)], at + count
        dtype = replace(t.dtype, name=PACKED[t.dtype.name]) if own else t.dtype
        return replace(t, dtype=dtype, dims=tuple(dims), factors=tuple(factors) if max(factors, default=1) > 1 else ())

    def dim(self, x: Name, halved: bool = False) -> list[Name]:
        """What a dim is split into; `halved`: its bytes alone."""
        split = self.splits.get(x.name)
        if split is None:
            return [x]
        return [replace(x, name=split.half)] if halved else [replace(x, name=split.half), replace(x, name=split.pair)]

    def renamed(self, name: Name) -> Name:
        return replace(name, name=self.values.get(name.name, name.name))

    # ------------------------------------------------------------------ expressions

    def body(self, root: Expr) -> Expr:
        """An expression over the dims that are split."""
        return folded(root, self.node)

    def node(self, node: Expr, done: list[Expr]) -> Expr:
        """One node, whose operands are `done`."""
        if isinstance(node, Num):
            return node
        if isinstance(node, Name):
            return self.name(node)
        args = tuple(done)
        split = next((d for d in node.dims or () if d.name in self.splits), None)
        if node.op in PACKED and node.written == "call" and node.dims is None and len(args) == 1 and node.op != "f4e2m1":
            return self.integer(node.op, args[0])
        if split is None:
            return replace(node, args=args)
        if node.op in (*SCANS, "pick"):
            raise self.wrong(f"`{node.op}` along {split.name}, of which two elements share a byte, is not supported", node.head)
        if node.op == "index" and not args:
            of = self.splits[split.name]
            half, pair = (_call("index", dims=(replace(split, name=name),), span=node.span) for name in (of.half, of.pair))
            return replace(_infix("add", _infix("mul", Num("2", node.span), half), pair), parens=True)
        if node.written == "place":
            count = len(node.dims or ())
            dims, places = self.place_dims(node.dims or (), args[1 : 1 + count], node.span)
            return replace(node, args=(args[0], *places, *args[1 + count :]), dims=dims)
        return replace(node, args=args, dims=tuple(new for d in node.dims or () for new in self.dim(d)))

    def place_dims(self, dims: tuple[Name, ...], places: tuple[Expr, ...], span: Span) -> tuple[tuple[Name, ...], tuple[Expr, ...]]:
        """Places along dims as those along halves and pairs."""
        names, found = list[Name](), list[Expr]()
        for d, e in zip(dims, places, strict=True):
            split = self.splits.get(d.name)
            names += self.dim(d)
            found += [e] if split is None else [_infix("floordiv", replace(e, parens=True), Num("2", span)),
                                                _infix("mod", replace(e, parens=True), Num("2", span))]  # fmt: skip
        return tuple(names), tuple(found)

    def name(self, node: Name) -> Expr:
        """A name: the elements of a packed parameter, a dim's size, or what it was."""
        if node.name in self.splits:
            size = self.splits[node.name].size
            own = Name(self.splits[node.name].half, node.span)
            return Num(str(size), node.span) if size else replace(_infix("mul", Num("2", node.span), own), parens=True)
        d = self.packed.get(node.name)
        if d is None or node.name in self.values:
            return self.renamed(node)
        assert d.type.dims is not None
        at = _call("index", dims=(Name(self.splits[d.type.dims[-1].name].pair, node.span),), span=node.span)
        shift = _call("u8", _infix("mul", Num("4", node.span), at), span=node.span)
        code = replace(_infix("bitand", replace(_infix("shr", node, shift), parens=True), Num("15", node.span)), parens=True)
        kind = d.type.dtype.name
        if kind == "u4":
            return code
        if kind == "i4":  # its sign is the upper bit of its half
            up, down = (_call("u8", Num(n, node.span), span=node.span) for n in ("8", "16"))
            sign = _call("i8", _infix("floordiv", code, up), span=node.span)
            return replace(_infix("sub", _call("i8", code, span=node.span), _infix("mul", sign, _call("i8", down))), parens=True)
        return _call(f"{kind}_value", code, span=node.span)

    def integer(self, kind: str, x: Expr) -> Expr:
        """A cast to an integer of four bits: saturating, as that of a float is."""
        if kind == "u4":
            return _call("min", _call("u8", x, span=x.span), Num("15", x.span), span=x.span)
        low = _call("neg", Num("8", x.span), written="prefix", span=x.span)
        return _call("clamp", _call("i8", x, span=x.span), low, Num("7", x.span), span=x.span)

    def written(self, name: str, value: str) -> Equation:
        """The equation of a packed result: of its elements the lower halves of bytes, and the upper ones."""
        d = self.packed[name]
        assert d.type.dims is not None
        given = [s.body for s in self.source.statements if isinstance(s, Equation) and s.name.name == name]
        span = given[0].span if given else d.span
        pair = Name(self.splits[d.type.dims[-1].name].pair, span)
        kind, of = d.type.dtype.name, Name(value, span)
        codes = _call(f"{kind}_code", of, span=span) if kind == "f4e2m1" else _call("u8", of, span=span)
        if kind != "f4e2m1" and not (given and isinstance(given[0], Apply) and given[0].op == kind):
            codes = _call("u8", self.integer(kind, of), span=span)
        low, high = (_call("place", codes, Num(n, span), dims=(pair,), written="place", span=span) for n in ("0", "1"))
        low = replace(_infix("bitand", low, Num("15", span)), parens=True)
        return Equation(replace(d.name, span=span), _infix("bitor", low, replace(_infix("shl", high, Num("4", span)), parens=True)), span)
