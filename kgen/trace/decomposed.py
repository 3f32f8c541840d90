"""torch's functions that have no row of their own, read through torch's decompositions.

In: a function of torch's and the values that it is called with.  Out: what it computes, by the rows of the operators that torch takes it
apart into.  The function runs on tensors without memory, whose sizes are primes of the dims; it runs twice, with other primes, and what
differs between the two is refused: a size, or a dtype's bound, that got into a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from kgen.errors import KgenError
from kgen.trace import names
from kgen.trace.axes import ONE, Axis, Restart
from kgen.trace.letters import Letters
from kgen.trace.names import Row
from kgen.trace.tracer import Refused
from kgen.trace.values import Const, Several, Traced, dtype_name
from kgen.types import DTYPES, is_literal, literal_size

#: The sizes of dims in the two runs: a prime for each dim, times what most splits divide.
PRIMES = ((251, 257, 263, 269, 271, 277, 281, 283, 293, 307), (311, 313, 317, 331, 337, 347, 349, 353, 359, 367))
DIVISIBLE = 12
#: What a dtype variable stands for in the two runs: constants that depend on it differ.
VARIABLES = ("float64", "float32")
#: ATen's names for rows that have others here.
ALIASES = {"_softmax": "softmax", "_log_softmax": "log_softmax", "_unsafe_view": "view", "sym_size": "size", "special_xlogy": "xlogy"}
#: ATen's operators that give their operand.
SAME = tuple("alias clone lift_fresh_copy contiguous lift lift_fresh real conj conj_physical resolve_conj resolve_neg".split())
#: Those that make a tensor to be written.
EMPTY = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty")
#: Those that make a number.
NUMBERS = {"full": 1, "scalar_tensor": 0, "zeros": None, "ones": None}


@dataclass
class Run:
    """One run: each tensor without memory with the value that it stands for, and what was done, for comparison."""

    sizes: dict[str, int]
    primes: tuple[int, ...]
    variable: str  # the dtype that variables stand for
    values: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    log: list[Any] = field(default_factory=list)
    uses: dict[int, int] = field(default_factory=dict)  # of the values made so far, by their number
    numbers: dict[int, int] = field(default_factory=dict)
    made: int = 0


class Decomposed(Letters):
    def decomposed(self, function: Callable[..., Any], shown: str, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        """What a function of torch's gives for values; None where torch has no decomposition that can be read."""
        if not any(isinstance(a, Traced) and self.is_tensor(a) for a in (*args, *kwargs.values())):
            return None
        args = [self.kept("x", self.lift(a, node), node) if isinstance(a, Traced) else a for a in args]
        kwargs = {k: self.kept("x", self.lift(a, node), node) if isinstance(a, Traced) else a for k, a in kwargs.items()}
        mark, doubts, runs = len(self.equations), len(self.doubts), list[Run]()
        self.torch, found = True, None
        for primes, variable in zip(PRIMES, VARIABLES, strict=True):
            del self.equations[mark:], self.doubts[doubts:]
            run = Run({}, primes, variable, uses=runs[0].uses if runs else {})
            try:
                found = self.run_decomposed(function, run, args, kwargs, node)
            except (Refused, Restart):
                raise
            except (_Unknown, ArithmeticError, AttributeError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
                if isinstance(error, KgenError):
                    raise
                why = str(error).split("\n")[0][:100] if isinstance(error, _Unknown) else "it does not run on shapes alone"
                raise self.refuse(f"kgen does not know `{shown}`", node, names.advice(shown.rpartition(".")[2]) or why) from None
            runs.append(run)
        if runs[0].log != runs[1].log:
            raise self.refuse(f"kgen does not know `{shown}`", node, "a number in it depends on sizes or on the dtype")
        return self.rounded(function, found, args, kwargs, node)

    def rounded(self, function: Callable[..., Any], found: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        """The values in the dtypes that torch's own operator gives them: a decomposition may compute in a wider one."""
        import torch

        given = [v for a in (*args, *kwargs.values()) for v in (a.items if isinstance(a, Several) else (a,))]
        names_of = {dtype_name(t) for v in given if isinstance(v, Traced) and self.is_tensor(v) and (t := self.type_of(v)) is not None}
        variables = [n for n in names_of if n and n not in DTYPES]
        if len(variables) != 1 or len(variables[0]) != 1:
            return found
        run = Run({}, PRIMES[0], "bfloat16")
        try:
            named = {k: self.meta(a, run, torch, node) for k, a in kwargs.items()}
            out = function(*(self.meta(a, run, torch, node) for a in args), **named)
        except (NotImplementedError, RuntimeError):
            return found
        values = found.items if isinstance(found, Several) else (found,)
        made = []
        for v, o in zip(values, out if isinstance(out, (tuple, list)) else (out,), strict=True):
            t = self.type_of(v) if isinstance(v, Traced) else None
            if t is not None and o.dtype == torch.bfloat16 and dtype_name(t) != variables[0]:
                v = replace(self.apply(variables[0], [v], node), shape=v.shape, free=v.free)
            made.append(v)
        return replace(found, items=tuple(made)) if isinstance(found, Several) else made[0]

    def run_decomposed(self, function: Callable[..., Any], run: Run, args: list[Any], kwargs: dict[str, Any],
                       node: Any) -> Any:  # fmt: skip
        """Run a function on tensors without memory, each operator's value by its row."""
        import torch
        import torch._refs
        from torch._decomp import decomposition_table
        from torch.utils._python_dispatch import TorchDispatchMode

        tracer = self

        class Reading(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                kwargs = kwargs or {}
                done = tracer.operator(func, args, kwargs, run, node)
                if done is not NotImplemented:
                    return done
                if func in decomposition_table:
                    with self:
                        return decomposition_table[func](*args, **kwargs)
                raise _Unknown(f"torch computes it by {func}, which has no row here")

        given = [self.meta(a, run, torch, node) for a in args]
        named = {k: self.meta(a, run, torch, node) for k, a in kwargs.items()}
        with torch.no_grad(), Reading():
            found = function(*given, **named)
        several = isinstance(found, (tuple, list))
        values = tuple(self.value_of(f, run, node) for f in (found if several else (found,)))
        fields = tuple(getattr(found, "_fields", ())) or tuple(getattr(type(found), "__match_args__", ()))
        return Several(values, fields if len(fields) == len(values) else ()) if several else values[0]

    # ------------------------------------------------------------------------------------------ values and tensors without memory

    def meta(self, value: Any, run: Run, torch: Any, node: Any) -> Any:
        """What a value is in such a run: a tensor of its shape and dtype, or the Python object itself."""
        if isinstance(value, Several):
            return tuple(self.meta(i, run, torch, node) for i in value.items)
        if not isinstance(value, Traced):
            return value.value if isinstance(value, Const) else self.lift(value, node)
        t = self.type_of(value)
        if t is None:
            raise Refused
        if not self.is_tensor(value):
            raise _Unknown("a number of the call is no constant")
        for axis in value.shape:
            for d in axis.dims:
                run.sizes.setdefault(d, literal_size(d) if is_literal(d) else DIVISIBLE * run.primes[len(run.sizes) % len(run.primes)])
            if axis.short:
                raise _Unknown(f"{axis} has a size without a name")
        name = dtype_name(t)
        dtype = getattr(torch, DTYPES[name].torch if name in DTYPES else run.variable)
        made = torch.empty([self.measured(a, run) for a in value.shape], dtype=dtype, device="meta")
        run.values[id(made)] = made, value
        return made

    def measured(self, axis: Axis, run: Run) -> int:
        return math.prod(run.sizes[d] for d in axis.dims)

    def value_of(self, x: Any, run: Run, node: Any) -> Any:
        """What an argument stands for; a tensor that a run has made of nothing is refused."""
        if isinstance(x, (tuple, list)):
            return Several(tuple(self.value_of(i, run, node) for i in x))
        if id(x) in run.values:
            value = run.values[id(x)][1]
            if id(x) in run.numbers:
                run.uses[run.numbers[id(x)]] = run.uses.get(run.numbers[id(x)], 0) + 1
            return value
        if hasattr(x, "dim") and hasattr(x, "dtype"):
            raise _Unknown("torch makes a tensor of its own in it")
        if isinstance(x, int) and not isinstance(x, bool) and x > 1:
            left, dims = Fraction(x), list[str]()
            for d, size in run.sizes.items():
                if not is_literal(d) and left.numerator % (size // DIVISIBLE) == 0:
                    left, dims = left / size, [*dims, d]
            run.log.append((str(left), tuple(dims)) if dims else x)
            if dims:
                whole = self.number_of({tuple(("size", d) for d in dims): Fraction(left.numerator)}, node)
                by = self.number(left.denominator, node)
                return whole if left.denominator == 1 else self.apply("floordiv", [whole, by], node, node, "infix")
        return Const(x)

    # ------------------------------------------------------------------------------------------ operators

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run, node: Any) -> Any:
        """The result of one of ATen's operators without memory, its value noted; `NotImplemented` where it has no row."""
        name = func._schema.name.split("::")[1]
        name = ALIASES.get(name, name)
        if name in EMPTY:
            return func(*args, **kwargs)
        if name == "copy_":
            run.values[id(args[0])] = args[0], self.value_of(args[1], run, node)
            return args[0]
        if name in NUMBERS:
            number = NUMBERS[name]
            value: Any = Const(args[number] if number is not None else int(name == "ones"))
        elif name in SAME:
            value = self.value_of(args[0], run, node)
        elif name == "broadcast_in_dim":
            value = self.broadcast(args, run, node)
        elif name in ("_to_copy", "convert_element_type", "to"):
            value = self.converted(args, kwargs, run, node)
        elif name == "slice":
            if len(args) > 4 and args[4] != 1:
                return NotImplemented
            x, ends = self.lift(self.value_of(args[0], run, node), node), [self.value_of(a, run, node) for a in args[2:4]]
            low, high = (*ends, Const(None), Const(None))[:2]
            if isinstance(high, Const) and isinstance(high.value, int) and high.value > 2**62:
                high = Const(None)
            value = self.narrowed(x, args[1] % len(x.shape) if len(args) > 1 else 0, low, high, node)
        else:
            written = name.endswith("_") and not name.endswith("__")
            row = _rows().get(name.rstrip("_") if written else name)
            if row is None:
                return NotImplemented
            value = self.by_row(name, row, args, kwargs, run, node)
            if written:
                run.values[id(args[0])] = args[0], value
                return args[0]
        return self.noted(func(*args, **kwargs), value, name, args, run, node)

    def converted(self, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run, node: Any) -> Any:
        """A cast; one to the dtype that a variable stands for in this run is none."""
        x = self.lift(self.value_of(args[0], run, node), node)
        dtype = kwargs.get("dtype", next((a for a in args[1:] if type(a).__name__ == "dtype"), None))
        if dtype is None or dtype == args[0].dtype:
            return x
        return replace(self.apply(self.dtype(Const(dtype), node), [x], node), shape=x.shape, free=x.free)

    def broadcast(self, args: tuple[Any, ...], run: Run, node: Any) -> Traced:
        """A tensor's axes at places among others, which are of size one or are made longer."""
        x, wanted, places = self.lift(self.value_of(args[0], run, node), node), args[1], list(args[2])
        shape = []
        for k, size in enumerate(wanted):
            own = x.shape[places.index(k)] if k in places else ONE
            long = own == ONE and size != 1
            shape.append(self.axis_of(self.form(self.value_of(size, run, node), node), node) if long else own)
        return replace(x, shape=tuple(shape))

    def by_row(self, name: str, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run, node: Any) -> Any:
        """The value of an operator by its row; arguments that ATen has and the row does not are left out where they say nothing."""
        known = list(row.signature.parameters)
        given = [self.value_of(a, run, node) for a in args]
        named = {k: self.value_of(v, run, node) for k, v in kwargs.items() if v is not None and (k in known or k not in _SILENT)}
        if name in ("softmax", "log_softmax"):
            given = given[:2]
        if name == "squeeze" and len(given) > 1 and isinstance(given[1], Several):
            value = given[0]
            for d in sorted((i.value % len(value.shape) for i in given[1].items), reverse=True):
                value = self.call_row(name, row, [value, Const(d)], {}, node)
            return value
        at, first = known.index("dim") if "dim" in known else len(given), given[0] if given else None
        rank = len(first.shape) if isinstance(first, Traced) else 0
        if at < len(given) and isinstance(given[at], Several):
            dims = tuple(Const(i.value % rank - rank) for i in given[at].items)
            given[at] = Several(dims) if 0 < len(dims) < rank else Const(None)
        elif at < len(given) and isinstance(given[at], Const) and isinstance(given[at].value, int):
            rank += name == "unsqueeze"
            given[at] = Const(given[at].value % rank - rank)
        return self.call_row(name, row, given, named, node)

    def noted(self, out: Any, value: Any, name: str, args: tuple[Any, ...], run: Run, node: Any) -> Any:
        """Keep what a result stands for, its shape held to torch's."""
        results = out if isinstance(out, (tuple, list)) else (out,)
        values = value.items if isinstance(value, Several) else (value,)
        constants = tuple(str(a) for a in args if isinstance(a, float))
        run.log.append((name, constants))
        run.made += 1
        if len(results) != len(values):
            raise _Unknown(f"torch computes it by {name}, which gives more results")
        for made, found in zip(results, values, strict=True):
            if isinstance(found, Traced):
                number = run.made
                if run.uses.get(number, 0) > 1:
                    found = self.kept("t", found, node)
                if not found.free and tuple(self.measured(a, run) for a in found.shape) != tuple(made.shape):
                    raise _Unknown(f"torch computes it by {name}, of another shape here")
                run.numbers[id(made)] = number
            run.values[id(made)] = made, found
        return out


_SILENT = ("memory_format", "layout", "device", "pin_memory", "non_blocking", "dtype", "implicit")


class _Unknown(Exception):
    """What a decomposition does that no row does."""


def _rows() -> dict[str, Row]:
    """The rows by ATen's names, which are those of torch's functions and methods; `nn.functional`'s come last."""
    found: dict[str, Row] = {}
    for place, row in sorted(_places(), key=lambda item: item[0].startswith("nn.")):
        found.setdefault(place.rpartition(".")[2], row)
    return found


def _places() -> Iterator[tuple[str, Row]]:
    return ((place, row) for row in names.ROWS for place in names.places(row))
