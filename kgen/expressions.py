"""The expressions of a kernel: names resolved, helpers and the prelude expanded, dtypes and dims worked out.

In: an expression's tree and the names that it sees.  Out: the number of a `Value` in a graph shared by structure, or
None after an error, which poisons what it enters, so that each mistake is told once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from kgen import advice, casts, host, positions, searches, syntax, typeset
from kgen.errors import Errors, Span, TooLong
from kgen.ops import CODES, CONSTANTS, OPS, REDUCTIONS, SCANS, Op
from kgen.places import Places
from kgen.scanned import scan
from kgen.syntax import Apply, Clause, Equation, Expr, File, Helper, Name, Num
from kgen.types import (
    BOOL,
    DTYPES,
    ELLIPSIS,
    FLOAT,
    INT,
    PACKING,
    WRITTEN,
    Dims,
    DType,
    Float,
    Number,
    ValueType,
    boolean,
    i64,
    is_bool,
    is_float,
    is_int,
    is_literal,
    is_wide,
    literal_size,
    promote,
    shown_dims,
    union,
    variable_of,
)
from kgen.values import Parameter, Value, closest, describe, did_you_mean, exact, needs_parameter, reached, show_value

MAX_VALUES = 2_000
MAX_NESTED = 64
MAX_FLOAT = 2**1024 - 2**970
NEGATIVE_POWER = "an integer to a negative power is no integer"
CALLS = ("min", "max")  # with square brackets a reduction, without an operator


@lru_cache(maxsize=1)
def prelude() -> Mapping[str, Helper]:
    return syntax.Functions((Path(__file__).parent / "prelude.k").read_text(), "prelude.k")


class Expressions:
    """The values of one file as they are made; `check.py` adds the header, the results and what holds of them."""

    def __init__(self, file: File):
        """Empty tables for the file's names; values are added as equations are read."""
        self.file = file
        self.clauses: tuple[Clause, ...] = ()  # what the header says of sizes
        self.errors = Errors(file.source)
        self.constants: dict[int, host.Value] = {}  # the values made of literals alone, integers exactly
        self.later: dict[str, Equation] = {}  # the first equation of each name
        self.equation: Equation | None = None  # the one at hand
        self.values: list[Value] = []
        self.ids: dict[Value, int] = {}
        self.params: dict[str, Parameter] = {}
        self.dims: dict[str, Span] = {}
        self.names: dict[str, int | None] = {}
        self.used: set[str] = set()
        self.helpers: dict[str, Helper] = {}
        self.expanding: list[Helper] = []
        self.memo: dict[tuple, int | None] = {}
        self.asides: dict[tuple[int, int, str], tuple[int, str]] = {}  # of a value, a place and a dim, the value along another dim
        self.variables: set[str] = set()
        self.passed: set[str] = set()  # parameters given to helpers, which may ask for their size alone
        self.outside: tuple[str, Span] | None = None  # the prelude function that the user called, and where: errors inside point there

    def error(self, message: str, span: Span | None, label: str = "", help: str = "") -> None:
        if self.outside is not None:
            message, span = f"in `{self.outside[0]}`: {message}", self.outside[1]
        self.errors.add(shown_dims(message), span, shown_dims(label), shown_dims(help))

    def make(self, op: str, args: tuple[int, ...], attr: str | Dims, t: ValueType, dims: Dims, span: Span) -> int:
        value = Value(op, args, attr, t, dims, self.outside[1] if self.outside else span)
        if value not in self.ids:
            if len(self.values) >= MAX_VALUES:
                self.error(f"the kernel has more than {MAX_VALUES:,} operations", span, help="split it into several kernels")
                self.errors.raise_any(TooLong)
            self.ids[value] = len(self.values)
            self.values.append(value)
        return self.ids[value]

    def evaluate(self, root: Expr, env: dict[str, int | None] | None = None, dims: dict[str, Dims] | None = None) -> int | None:
        """The value of an expression; None (after an error) poisons what it enters, so that each mistake is told once.

        `env` and `dims` are a helper's arguments; without them names are the kernel's own.
        """
        done: dict[int, int | None] = {}
        for node in syntax.postorder(root):
            if isinstance(node, Num):
                done[id(node)] = self.number(node)
            elif isinstance(node, Name):
                done[id(node)] = self.lookup(node, env, dims)
            else:
                done[id(node)] = self.apply(node, [done[id(a)] for a in node.args], dims, env is not None)
        return done[id(root)]

    def number(self, node: Num) -> int | None:
        text = node.text.lower()
        integer = text.startswith("0x") or text.isdigit()
        if integer and int(text, 16 if text.startswith("0x") else 10) >= 2**63:
            self.error("this number is too large for an i64", node.span, help="write it with a decimal point to make it a float")
            return None
        if not integer and exact(text) > MAX_FLOAT:
            self.error("this number is too large for an f64", node.span, help="infinity is `inf`")
            return None
        shown = str(int(text, 16)) if text.startswith("0x") else text
        made = self.make("lit", (), shown, INT if integer else FLOAT, (), node.span)
        self.constants[made] = int(shown) if integer else float(exact(shown))
        return made

    def lookup(self, node: Name, env: dict[str, int | None] | None, dims: dict[str, Dims] | None) -> int | None:
        """The value of a name, by its number; None, with an error, where there is none.  `env` has a helper's arguments and
        `dims` its dims, both None in an equation."""
        name = node.name
        if env is not None:
            if name in env:
                return env[name]
            if dims is not None and name in dims:
                return self.size(dims[name], node.span)
        elif name in self.names:
            self.used.add(name)
            return self.names[name]
        elif name in self.dims:
            return self.size((name,), node.span)
        if name in CONSTANTS:
            return self.make("const", (), name, FLOAT, (), node.span)
        self.unknown_name(node, env)
        return None

    def size(self, dims: Dims, span: Span) -> int:
        """How many elements some dims have together, a number."""

        def one(dim: str) -> int:
            found = self.number(Num(str(literal_size(dim)), span)) if is_literal(dim) else None
            return self.make("size", (), dim, INT, (), span) if found is None else found

        value = one(dims[0])
        for d in dims[1:]:
            value = self.make("mul", (value, one(d)), "", INT, (), span)
        return value

    def unknown_name(self, node: Name, env: dict[str, int | None] | None) -> None:
        """The error for a name without a value, with what was probably meant."""
        name = node.name
        if env is not None:
            self.error(f"`{name}` is not an argument of this helper", node.span, help="a helper sees its own arguments only")
        elif name in self.later and self.later[name] is not self.equation:
            row = self.file.source.place(self.later[name].span.start)[0]
            if name not in self.used:
                self.error(f"`{name}` is used before its equation", node.span, help=f"move line {row} up")
            self.used.add(name)
        elif self.is_function(name):
            self.error(f"`{name}` is a function", node.span, help=f"call it: `{name}(...)`")
        elif self.later.get(name) is self.equation:
            self.error(
                f"`{name}` stands in its own equation", node.span, help="a name has one value: give the value used here another name"
            )
        elif name in advice.WORDS:
            self.error(f"`{name}` is not defined", node.span, help=advice.WORDS[name])
        else:
            found = name.lower() if name.lower() in CONSTANTS else closest(name, [*self.names, *self.dims, *CONSTANTS])
            self.used.add(found)
            self.error(f"`{name}` is not defined", node.span, help=did_you_mean(found))

    def is_function(self, name: str) -> bool:
        return name == "pick" or self.is_dtype(name) or any(name in known for known in (OPS, REDUCTIONS, SCANS, self.helpers, prelude()))

    def is_dtype(self, name: str) -> bool:
        """Whether a name stands for a dtype of values here: a storage dtype, a variable of the kernel's, or `T32` of one."""
        return name in WRITTEN and name in DTYPES or variable_of(name) in self.variables

    def unknown_function(self, node: Apply) -> None:
        """The error for a call of what does not exist, with what was probably meant."""
        signs = {name for name, _ in (*syntax.INFIX.values(), *syntax.PREFIX.values())}
        dtypes = (d for d in DTYPES if d in WRITTEN)
        known = [*(op for op in OPS if op not in signs), *REDUCTIONS, *SCANS, *self.helpers, *prelude(), *dtypes, "pick"]
        self.error(
            f"there is no function `{node.op}`",
            node.head,
            help=f"bytes of {element} are those of a tensor declared `{element}[...]`, whose values are `{element}(x)`"
            if (element := PACKING.get(node.op))
            else needs_parameter(node.op)
            if is_wide(node.op)
            else advice.unknown_function(node.op, known),
        )

    def apply(self, node: Apply, args: list[int | None], env_dims: dict[str, Dims] | None, in_helper: bool) -> int | None:
        """The value of an operator, cast, reduction or helper applied to values (by number; None where one is wrong already);
        None where there is none, with an error."""
        op = node.op
        if node.written == "place":
            return self.place(node, args, env_dims)
        if op == "index" and not node.args:
            return positions.index(self, node, env_dims)
        if op in SCANS and node.written == "call":
            return scan(self, node, args, env_dims)
        if node.written == "call" and self.is_dtype(op) and op not in self.helpers:
            return casts.cast(self, node, args)
        if op in CODES and node.written == "call" and op not in self.helpers:
            return casts.converted(self, node, args)
        if node.dims is not None and not node.args and op in self.names:
            of, at = self.names[op], self.names.get(node.dims[0].name) if len(node.dims) == 1 else None
            own = [d for d in (self.values[of].dims if of is not None else ()) if d != ELLIPSIS] or ["N"]
            open_ = [d for d in own if at is None or d not in self.values[at].dims] or own  # a table is read along its first
            place = f"{own[-1]} = 0" if at is None else f"{open_[0]} = {node.dims[0].name}"
            help = f"a place along a dim is `{op}[{place}]`; all of it is `{op}` alone"
            self.error(f"`{op}` cannot be indexed", node.span, help=help)
            return None
        dims = self.dims_of(node, env_dims)
        if node.dims is not None and dims is None:
            return None
        if op == "index":
            self.error("`index[N]` takes no operand", node.head, help="it is the element's position along N")
            return None
        if node.dims is not None and not node.args and self.is_function(op):
            self.error(f"`{op}[...]` lacks its operand", node.span, help=f"write `{op}[{', '.join(d.name for d in node.dims)}](x)`")
            return None
        if node.written == "call" and op in self.helpers or (op in prelude() and op not in OPS):
            return self.call_helper(node, args, dims)
        if op in ("pick", *REDUCTIONS) and (dims is not None or op not in CALLS):
            return self.reduce(node, args, dims)
        if op not in OPS or node.written == "call" and op == "pos":
            self.unknown_function(node)
            return None
        if dims is not None:
            self.error(f"`{op}` takes no dims", node.head, help=f"write `{op}(...)`")
            return None
        row = OPS[op]
        if op in CALLS and len(args) > 2:  # max(a, b, c) is max(max(a, b), c)
            value = args[0]
            for other in args[1:]:
                value = None if value is None or other is None else self.operate(row, node, [value, other])
            return value
        if len(args) != row.arity:
            self.wrong_count(
                node, op, row.args, "over a dim it is `max[N](x)`" if op == "max" else "over a dim it is `min[N](x)`" if op == "min" else ""
            )
            return None
        return None if None in args else self.operate(row, node, [a for a in args if a is not None])

    def operands_of(self, node: Apply, args: list[int | None], wanted: tuple[str, ...]) -> list[int]:
        """The operands of a call, which `wanted` names; none, with an error, where they are more or fewer, and where one has an error."""
        if len(args) != len(wanted):
            self.wrong_count(node, node.op, wanted)
        found = [a for a in args if a is not None]
        return found if len(found) == len(args) == len(wanted) else []

    def wrong_count(self, node: Apply, op: str, wanted: tuple[str, ...], help: str = "", dims: Dims | None = None) -> None:
        """The error for a call with more arguments or fewer; `dims` are those that it lacks."""
        plural = "argument" if len(wanted) == 1 else "arguments"
        own = dims if dims is not None else tuple(d.name for d in node.dims or ())
        shown = f"[{', '.join('N' if d == 'D' else d for d in own)}]" if own else ""
        help = help or f"write `{op}{shown}({', '.join(wanted)})`"
        self.error(f"`{op}` takes {len(wanted)} {plural}, not {len(node.args)}", node.head, help=help)

    def dims_of(self, node: Apply, env: dict[str, Dims] | None) -> Dims | None:
        """The dims in a call's square brackets, a helper's own ones replaced; None without brackets or after an error."""
        if node.dims is None:
            return None
        names: list[str] = []
        for d in node.dims:
            if env is not None and d.name in env:
                names.extend(env[d.name])
            elif d.name == ELLIPSIS or d.name in self.dims:
                names.append(d.name)
            else:
                help = f"{d.name} is a dtype" if d.name in self.variables else advice.no_such_dim(d.name, self.dims)
                self.error(f"there is no dim {d.name}", d.span, help=help)
                return None
        for k, d in enumerate(node.dims):
            if d.name in [other.name for other in node.dims[:k]]:
                self.error(f"dim {d.name} stands twice here", d.span)
                return None
        return tuple(names)

    def place(self, node: Apply, args: list[int | None], env: dict[str, Dims] | None) -> int | None:
        """The value of `x[N = e else fill]`; None, with an error, where x has no such dim, or e is no place along it."""
        dims = self.dims_of(node, env)
        given = [a for a in args if a is not None]
        if dims is None or len(given) < len(args):
            return None
        x, places, fill = self.values[given[0]], given[1 : len(dims) + 1], given[len(dims) + 1 :]
        shown = node.args[0]
        what = f"`{shown.name}`" if isinstance(shown, Name) else "this value"
        read = Places(self.values, self.clauses)
        for d, named, e, at in zip(dims, node.dims or (), places, node.args[1:], strict=False):
            t = self.values[e]
            if d == ELLIPSIS or d not in x.dims:
                help = "a place is along a named dim" if d == ELLIPSIS else ""
                self.error(f"{what} has no dim {d}", named.span, label=show_value(x), help=help)
                return None
            if not is_int(t.type):
                self.error(f"a place is an integer, this is {describe(t)}", at.span, help="positions are `index[N]` and sizes")
                return None
            if self.is_read(e):
                return self.picked(node, given, dims, at)
        inside = [read.inside(e, d) for d, e in zip(dims, places, strict=True)]
        if fill and all(inside):
            self.error("this fill is never used: every place lies inside", node.args[-1].span, help="leave the `else` out")
            return None
        if not fill and not all(inside):
            k = inside.index(False)
            self.error(f"this may lie outside of {dims[k]}", node.args[1 + k].span, label=f"0 to {dims[k]} - 1",
                       help=f"say what stands there, as in `x[{dims[k]} = ... else 0]`")  # fmt: skip
            return None
        made = self.make("place", (given[0], *places), dims, x.type, self.placed(x.dims, dims, places), node.span)
        return made if not fill else self.filled(node, made, fill[0])

    def placed(self, have: Dims, dims: Dims, places: list[int]) -> Dims:
        """The dims of what has some at places along a few of them."""
        return union(tuple(d for d in have if d not in dims), *(self.values[e].dims for e in places))

    def filled(self, node: Apply, place: int, fill: int) -> int | None:
        """A place where it lies inside, else the fill."""
        value, conditions = self.values[place], list[int]()
        for d, e in zip(value.attr, value.args[1:], strict=True):
            dims, kind = self.values[e].dims, BOOL if isinstance(self.values[e].type, Number) else boolean
            low = self.make("ge", (e, self.make("lit", (), "0", INT, (), node.span)), "", kind, dims, node.span)
            high = self.make("lt", (e, self.size((d,), node.span)), "", kind, dims, node.span)
            conditions += [low, high]
        inside = conditions[0]
        for c in conditions[1:]:
            dims = union(self.values[inside].dims, self.values[c].dims)
            kind = BOOL if {self.values[inside].type, self.values[c].type} == {BOOL} else boolean
            inside = self.make("and", (inside, c), "", kind, dims, node.span)
        choice = Apply("where", (node.args[0], node.args[0], node.args[-1]), node.span, node.head, "where")
        return self.operate(OPS["where"], choice, [inside, place, fill])

    def is_read(self, v: int) -> bool:
        """Whether an integer depends on what tensors hold."""
        values = (self.values[at] for at in reached([v], lambda at: self.values[at].args))
        return any(value.op == "param" and not isinstance(value.type, Number) for value in values)

    def picked(self, node: Apply, given: list[int], dims: Dims, at: Expr) -> int | None:
        """The value of `w[V = ids]`, a place that is read: that of `pick[V](w, ids)`."""
        if len(given) > 2:
            message = f"a place that is read from memory {'takes no fill' if len(dims) == 1 else 'stands alone'}"
            self.error(message, at.span, help="outside of the dim there is NaN, or 0 of integers")
            return None
        return self.reduce(Apply("pick", (node.args[0], at), node.span, node.head, "call", node.dims), [*given], dims)

    def call_helper(self, node: Apply, args: list[int | None], dims: Dims | None) -> int | None:
        """The value of a helper's body for these arguments and dims, expanded in place; None, with an error, where it does not fit."""
        name = node.op
        own = name in self.helpers and self.outside is None  # the prelude's functions see the prelude alone
        helper = self.helpers[name] if own else prelude()[name]
        if own:
            self.used.add(name)
        if helper in self.expanding:
            self.error(f"helper `{name}` calls itself", node.head, help="a kernel has no recursion")
            return None
        if len(self.expanding) >= MAX_NESTED:
            self.error(f"helpers call one another more than {MAX_NESTED} deep", node.head, help="give a part of it a name in an equation")
            self.errors.raise_any()
        if len(args) != len(helper.params):
            dims = tuple(d.name for d in helper.dims) if node.dims is None else None
            self.wrong_count(node, name, tuple(p.name for p in helper.params), dims=dims)
            return None
        if (dims is None) != (not helper.dims):
            seen = self.values[args[0]].dims if args and args[0] is not None else ()
            sample = seen[-1] if seen and len(helper.dims) == 1 else ", ".join(d.name for d in helper.dims)
            self.error(
                f"`{name}` takes {'dims' if helper.dims else 'no dims'}",
                node.head,
                help=f"write `{name}{f'[{sample}]' if sample else ''}(...)`",
            )
            return None
        if dims is not None and len(helper.dims) not in (1, len(dims)):
            self.error(f"`{name}` takes {len(helper.dims)} dims, not {len(dims)}", node.head)
            return None
        given = [a for a in args if a is not None]
        if len(given) < len(args):
            return None
        makes = own or dims is None or positions.makes(helper, prelude())  # the prelude's others reduce over their dims
        if not makes and not self.has_dims(node, self.values[given[0]], dims or ()):
            return None
        self.passed |= {str(v.attr) for v in (self.values[a] for a in given) if v.op == "param"}
        key = (helper, tuple(args), dims)
        if key not in self.memo:
            names: dict[str, Dims] = {}
            if dims is not None:  # a single dim argument stands for all the dims given
                names = (
                    {helper.dims[0].name: dims} if len(helper.dims) == 1 else {d.name: (x,) for d, x in zip(helper.dims, dims, strict=True)}
                )
            outside, self.outside = self.outside, self.outside or (None if own else (name, node.span))
            self.expanding.append(helper)
            self.memo[key] = self.evaluate(helper.body, dict(zip((p.name for p in helper.params), args, strict=True)), names)
            self.expanding.pop()
            self.outside = outside
        return self.memo[key]

    def reduce(self, node: Apply, args: list[int | None], dims: Dims | None) -> int | None:
        """The value of a reduction or `pick` over dims; None, with an error, where its operands have not those dims or not that dtype."""
        op = node.op
        wanted = ("x", "t") if op == "pick" else REDUCTIONS[op].args
        if dims is None:
            self.error(f"`{op}` reduces over dims", node.head, help=f"write `{op}[N]({', '.join(wanted)})`")
            return None
        if not (given := self.operands_of(node, args, wanted)):
            return None
        if not self.has_dims(node, x := self.values[given[0]], dims):
            return None
        rest = tuple(d for d in x.dims if d not in dims)
        if op == "pick":
            t = self.values[given[1]]
            return self.pick(node, given, dims, rest) if self.picks(node, t, dims) else None
        if op in searches.SEARCHES:
            return searches.value(self, node, given, dims)
        rule = REDUCTIONS[op].rule
        if rule == "float" and not is_float(x.type):
            self.error(f"`{op}` needs a float, its operand is {describe(x)}", node.head, help=f"write `{op}[{', '.join(dims)}](f32(...))`")
            return None
        if rule in ("index",) and is_bool(x.type):
            self.error(f"`{op}` of a bool", node.head, help="cast it, as in `u8(x)`")
            return None
        reduced: ValueType = {"bool": boolean, "index": i64}.get(rule) or (i64 if rule == "sum" and not is_float(x.type) else x.type)
        return self.make(op, (given[0],), dims, reduced, rest, node.span)

    def has_dims(self, node: Apply, x: Value, dims: Dims) -> bool:
        """Whether an operand has the dims that a call reduces it over; an error if not."""
        for d in dims:
            if d not in x.dims:
                shown = node.args[0]
                what = f"`{shown.name}`" if isinstance(shown, Name) else "its operand"
                self.error(
                    f"`{node.op}` reduces over {'`...`' if d == ELLIPSIS else d}, which {what} does not have",
                    node.head,
                    label=show_value(x),
                    help="a number has no dims"
                    if isinstance(x.type, Number)
                    else f"name its dims: `{node.op}[{', '.join(x.dims)}]`"
                    if d == ELLIPSIS and x.dims
                    else "",
                )
                return False
        return True

    def picks(self, node: Apply, t: Value, dims: Dims) -> bool:
        """Whether `pick` can take its element at `t`; an error if not."""
        if len(dims) != 1 or dims[0] == ELLIPSIS:
            self.error("`pick` takes one named dim", node.head, label=f"[{', '.join(dims)}]", help="write `pick[N](x, t)`")
            return False
        if isinstance(t.type, Number) or not is_int(t.type):
            message = "`pick` needs an integer tensor for its second argument"
            help = "declare it as a tensor, `t: i64[]`" if isinstance(t.type, Number) else "cast it, as in `i64(t)`"
            self.error(message, node.args[1].span, label=show_value(t), help=help)
            return False
        return True

    def pick(self, node: Apply, given: list[int], dims: Dims, rest: Dims) -> int:
        """The value of `pick[N](x, t)`.  Where t has the dim N itself, as in a gather by an index of x's own dims, x is read along another
        dim of that size."""
        x, t = given
        if dims[0] in self.values[t].dims:
            if (key := (x, t, dims[0])) not in self.asides:
                self.asides[key] = positions.aside(self, x, dims[0], node)
            x, dims = self.asides[key][0], (self.asides[key][1],)
        return self.make("pick", (x, t), dims, self.values[x].type, union(rest, self.values[t].dims), node.span)

    def operate(self, row: Op, node: Apply, args: list[int]) -> int | None:
        """The value of a row of the table applied to values; None, with an error, where their types do not fit."""
        values = [self.values[a] for a in args]
        if row.name in ("div", "floordiv", "mod") and values[1].op == "lit" and exact(str(values[1].attr)) == 0:
            self.error(
                "this divides by zero",
                node.args[-1].span if self.outside is None else node.span,
                help="infinity is `inf`" if row.name == "div" else "",
            )
            return None
        if row.rule == "compare" and (other := self.beside_nan(node, args)) is not None:
            self.error(*advice.compared_with_nan(row.name, typeset.format_expr(other), node.span))
            return None
        t = self.result_type(row, node, values)
        if t is None:
            return None
        whole = isinstance(t, DType) and t.is_int or t == INT and args[0] not in self.constants
        if row.name == "pow" and whole and self.constants.get(args[1], 0) < 0:
            self.error(NEGATIVE_POWER, node.args[1].span, help="write it with a decimal point, as in `n^-1.0`")
            return None
        common = promote([(v.type, bool(v.dims)) for v in values]) if row.rule == "compare" else t
        if not all(self.fits(a, common, n, row.rule == "bits") for a, n in zip(args, node.args, strict=False)):
            return None
        made = self.make(row.name, tuple(args), "", t, union(*(v.dims for v in values)), node.span)
        return made if self.folds(row.name, args, t, node, made) else None

    def beside_nan(self, node: Apply, args: list[int]) -> Expr | None:
        """What is compared with `nan`, where that is written as an operand, signs before it or not; None where it is not."""
        for k, (arg, value) in enumerate(zip(node.args, args, strict=False)):
            while isinstance(arg, Apply) and arg.written == "prefix" and self.values[value].op in ("neg", "pos"):
                arg, value = arg.args[0], self.values[value].args[0]
            if isinstance(arg, Name) and arg.name == "nan" and (self.values[value].op, self.values[value].attr) == ("const", "nan"):
                return node.args[1 - k]
        return None

    def fits(self, a: int, t: ValueType, node: Expr, as_bits: bool = False) -> bool:
        """Whether an integer made of literals alone can be had in the dtype `t`; an error if not."""
        if self.values[a].type != INT or a not in self.constants or not isinstance(t, DType) or not t.is_int:
            return True
        return self.holds(self.constants[a], t, node, as_bits)

    def holds(self, x: host.Value, t: DType, node: Expr, as_bits: bool = False) -> bool:
        """Whether an integer dtype holds a number (`as_bits`: or a number with its bits); an error if not."""
        low, high = t.limits
        if (-(2 ** (t.bits - 1)) if as_bits else low) <= x < (2**t.bits if as_bits else high + 1):
            return True
        help = f"{t} holds {low:,} to {high:,}"
        help += "; write a number with a decimal point to compute in floats" if t is i64 else ""
        self.error(f"this integer does not fit {'an' if t.name[0] == 'i' else 'a'} {t}", node.span, help=help)
        return False

    def folds(self, op: str, args: list[int], t: ValueType, node: Apply, made: int) -> bool:
        """Compute what is made of literals alone, with integers as they are in mathematics; an error where its dtype cannot hold it."""
        whole = t == INT or isinstance(t, DType) and t.is_int
        if made in self.constants or not all(a in self.constants for a in args) or not (whole or isinstance(t, Number) or t is boolean):
            return True
        given = [self.constants[a] for a in args]
        dtype = t if isinstance(t, DType) else i64
        try:
            value = host.constant(op, given, INT if whole else t if isinstance(t, Number) else BOOL)
        except OverflowError:
            value = 2**64  # more than any dtype holds
        except ZeroDivisionError:
            self.error("this divides by zero", node.args[-1].span if self.outside is None else node.span)
            return False
        except ValueError:
            shift = op in ("shl", "shr")
            self.error("this shifts by a negative number" if shift else NEGATIVE_POWER, node.span,
                       help="" if shift else "write it with a decimal point, as in `2.0^-1`")  # fmt: skip
            return False
        if whole and not self.holds(value, dtype, node):
            return False
        self.constants[made] = value
        return True

    def result_type(self, row: Op, node: Apply, values: list[Value]) -> ValueType | None:
        """The type of a row's result for operands of these types; None, with an error, where the row has none for them."""
        kinds = [(v.type, bool(v.dims)) for v in values]
        shown = (
            node.op
            if node.written == "call"
            else next(s for s, (o, _) in (*syntax.INFIX.items(), *syntax.PREFIX.items(), ("if", ("where", 0))) if o == row.name)
        )
        numbers = all(isinstance(t, Number) for t, _ in kinds)
        if row.rule == "where":
            if not is_bool(values[0].type):
                self.error(
                    f"the condition is {describe(values[0])}, not a bool",
                    node.args[0].span if node.args else node.span,
                    help="compare it, as in `c != 0`",
                )
                return None
            t = promote(kinds[1:])
            if isinstance(t, Number) and not isinstance(
                values[0].type, Number
            ):  # numbers chosen element by element, as torch.where types them
                return {"bool": boolean, "int": i64}.get(t.kind, Float(frozenset({"f32"})))
            return t
        if row.rule == "logical":
            for v, arg in zip(values, node.args, strict=False):
                if not is_bool(v.type):
                    self.error(f"`{shown}` needs bools, this is {describe(v)}", arg.span, help="compare it, as in `x != 0`")
                    return None
            return BOOL if numbers else boolean
        t = promote(kinds)
        if not row.bools and is_bool(t) and row.rule in ("arith", "same", "float"):
            self.error(
                f"`{shown}` of a bool",
                node.head,
                help="use `not`, `!=`, or cast it, as in `f32(x)`" if shown == "-" else "cast it, as in `f32(x)`",
            )
            return None
        if row.rule in ("bits", "shift", "words") and (is_float(t) or row.rule != "bits" and is_bool(t)):
            self.error(f"`{shown}` needs integers, not {t}", node.head, help="cast it, as in `i32(x)`")
            return None
        if row.rule in ("compare", "test"):
            return BOOL if numbers else boolean
        if row.rule == "float" and not is_float(t):
            return FLOAT if numbers else Float(frozenset({"f32"}))
        return i64 if row.rule == "words" and not numbers else t
