"""Calls of torch's functions and methods: `names.py`'s rows applied, with torch's own rules for dims.

A row's text is evaluated node by node on the arguments' values; dims that torch counts from the right are found through the
shapes that `values.py` tracks.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from functools import cache
from typing import Any

from kgen import syntax
from kgen.ops import OPS, REDUCTIONS
from kgen.places import _sum
from kgen.syntax import Apply, Name, Num
from kgen.trace import names
from kgen.trace.axes import ONE, Axes, Axis, show_shape
from kgen.trace.joining import Joining
from kgen.trace.names import METHODS, Row
from kgen.trace.tracer import Refused
from kgen.trace.values import Const, Dtype, Several, Shape, Traced, dtype_name, named
from kgen.types import DTYPES, ELLIPSIS, FLOAT, TORCH, WRITTEN, Dims, is_float, is_int
from kgen.values import closest, did_you_mean

_SPECIAL_WORDS = ("dim", "keepdim", "dtype", "reduction", "normalized_shape", "unbiased", "correction", "device")
#: What changes no reduction.
NEUTRAL: dict[str, float | bool] = {"sum": 0, "mean": 0, "prod": 1, "max": float("-inf"), "min": float("inf"), "any": False, "all": True}


@cache
def saturates(name: str) -> bool:
    """Whether the torch that is installed takes what a float of 8 bits cannot hold to its greatest value: beyond 448 it gives NaN in e4m3fn
    where it is 2.11, and 448 where it is 2.13."""
    import torch

    dtype = DTYPES.get(name)
    if dtype is None or not dtype.coded or dtype.bits != 8 or dtype.coding is None or dtype.coding.exponents:
        return False
    return bool(torch.tensor(1e6).to(getattr(torch, dtype.torch)).float() == dtype.largest)


class TorchCalls(Joining):
    def call_row(self, shown: str, row: Row, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """The value of a call; `shown` is the function as the writer named it."""
        self.torch = True
        parts = (v for a in (*args, *kwargs.values()) for v in (a.items if isinstance(a, Several) else (a,)))
        if any(isinstance(v, Traced) and v.id is None for v in parts):
            return self.poison(self.span(node))
        name = names.places(row)[0].rpartition(".")[2]
        if name in ("max", "min") and (found := self.greatest(shown, row, name, args, kwargs, node)):
            return found
        if name == "size":
            return self.size_call(args, kwargs, node)
        given = self.bound(shown, row, args, kwargs, node)
        if name in names.CASTS and row.names == f".{name}":
            return self.call_to(shown, row, given | {"dtype": Dtype(names.CASTS[name])}, node)
        own = getattr(self, f"call_{name}", None)
        if own is not None:
            return own(shown, row, given, node)
        return self.by_text(shown, row, given, node)

    def bound(self, shown: str, row: Row, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> dict[str, Any]:
        """The arguments by torch's names for them, its own defaults among them."""
        known = list(row.signature.parameters)
        alias = {"axis": "dim", "keepdims": "keepdim", "self": "input", "x": "input", "tensor": "input", "indices": "index",
                 "split_size_or_sections": "split_size", "indices_or_sections": "chunks"}  # fmt: skip
        last = sum(p.default is p.empty for p in row.signature.parameters.values())
        if row.rest and len(args) > last:
            args = [*args[: last - 1], Several(tuple(args[last - 1 :]))]
        taken = {alias[k] if alias.get(k) in known and k not in known else k: v for k, v in kwargs.items()}
        for k in taken:
            if k not in known:
                raise self.refuse(f"kgen does not know `{k}=` of `{shown}`", self.keyword(node, k), f"it knows {', '.join(known)}")
        try:
            filled = row.signature.bind(*args, **taken)
        except TypeError as error:
            raise self.refuse(f"`{shown}`: {error}", node, f"it takes {', '.join(known)}") from None
        defaults = {k: Const(p.default) for k, p in row.signature.parameters.items() if p.default is not p.empty}
        return {**defaults, **filled.arguments}

    def keyword(self, node: ast.Call, name: str) -> Any:
        return next((k for k in node.keywords if k.arg in (name, "axis", "keepdims")), node)

    # ------------------------------------------------------------------------------------------ a row's text

    def by_text(self, shown: str, row: Row, given: dict[str, Any], node: ast.Call, text: str = "") -> Traced:
        """A torch function's call as the spec's text of its row says (`text` where it is another), `given` being its arguments by name."""
        params = tuple(row.signature.parameters)
        if "unbiased" in given:
            chosen = given.pop("unbiased")
            if self.constant(chosen, node, f"`unbiased` of `{shown}`") is not None:
                given["correction"] = Const(int(bool(chosen.value)))
        text = text or self.text_of(shown, row, given, params, node)
        words = names.uses(text, params)
        for k, v in given.items():
            default = row.signature.parameters[k].default
            if k in words or k in _SPECIAL_WORDS or k == row.by:
                continue
            value = self.constant(v, node, f"`{k}` of `{shown}`")
            if value != default and k != "inplace" or value is True and k == "inplace":
                raise self.refuse(f"kgen knows `{shown}` with {k}={default!r} alone", node)
        values = {k: self.lift(given[k], node, f"`{k}` of `{shown}`") for k in params if k in words}
        if any(v.id is None for v in values.values()):
            return self.poison(self.span(node))
        if (dtype := given.get("dtype")) is not None and "dtype" in params and not self.is_none(dtype):
            values[params[0]] = self.apply(self.dtype(dtype, node), [values[params[0]]], node)
        values = {k: self.kept(k, v, node) if words[k] > 1 else v for k, v in values.items()}
        self.check_operands(shown, row, list(values.values()), node)
        shape, free = self.meet(list(values.values()), self.span(node))
        dims = self.row_dims(shown, given, shape, node, row) if "D" in words or "D" in text else None
        if any(a.short and set(a.dims) <= set(dims or ()) for a in shape):
            body = names.formula(text, params)
            if not (isinstance(body, Apply) and body.op in NEUTRAL and isinstance(body.args[0], Name)):
                raise self.refuse(f"`{shown}` runs over {show_shape(shape)}", node, "sums, means and maxima may run over a part of a dim")
            result = self.run_over(body.op, values[params[0]], dims or (), node)
        else:
            result = self.evaluate(text, params, values, dims, node)
        if dims is not None and row.reduces:
            keep = self.constant(given.get("keepdim", Const(False)), node, f"`keepdim` of `{shown}`")
            if not isinstance(keep, bool):
                raise self.refuse(f"`keepdim` of `{shown}` is True or False", node, "several dims are a tuple, as in `dim=(-2, -1)`")
            result = replace(result, shape=self.reduced(shape, dims, keep), free=free)
        elif dims is not None:
            result = replace(result, shape=shape, free=free)
        if dtype is not None and "dtype" in params and not self.is_none(dtype):
            result = self.as_asked(result, dtype, node)
        if (how := given.get("reduction")) is not None:
            result = self.reduction(shown, result, how, node)
        if row.same and result.id is not None and self.type_of(result) != self.type_of(values[params[0]]):
            raise self.refuse(
                f"`{shown}` would change the dtype from {self.type_of(values[params[0]])} to {self.type_of(result)}", node,
                "torch refuses this: cast the operand",
            )  # fmt: skip
        first = values.get(params[0])
        return replace(result, owner=first.owner if row.shares and first is not None else "")

    def text_of(self, shown: str, row: Row, given: dict[str, Any], params: tuple[str, ...], node: ast.Call) -> str:
        """The text of a row that a call's arguments choose: by the value of one, or the first of which none is None.  Raises `KgenError`
        where there is no such text."""
        if isinstance(row.texts, dict):
            if names.OTHER in row.texts:
                chosen = given[row.by].value if isinstance(given[row.by], Const) else names.OTHER
                return row.texts.get(chosen, row.texts[names.OTHER])
            value = self.constant(given[row.by], node, f"`{row.by}` of `{shown}`")
            if value not in row.texts:
                raise self.refuse(f"kgen knows `{shown}` with {row.by} {' or '.join(repr(k) for k in row.texts)}, not {value!r}", node)
            return row.texts[value]
        lacking: list[str] = []
        for text in row.texts:
            lacking = [w for w in names.uses(text, params) if w in given and self.is_none(given[w])]
            if not lacking:
                return text
        help = "a number, as in `nn.RMSNorm(n, eps=1e-6)`: its default depends on the dtype of the call" if lacking[0] == "eps" else ""
        raise self.refuse(f"`{shown}` needs `{lacking[0]}`", node, help)

    def evaluate(self, text: str, params: tuple[str, ...], values: dict[str, Traced], dims: Dims | None, node: Any) -> Traced:
        """A row's text on values; what is reduced inside keeps its dims, to meet the others as `keepdim=True` has it."""
        span = self.span(node)
        done: dict[int, Traced] = {}
        body = names.formula(text, params)
        for part in syntax.postorder(body):
            if isinstance(part, Num):
                made = Traced(Num(part.text, span), self.scout.number(Num(part.text, span)), ())
            elif isinstance(part, Name):
                made = values.get(part.name) or Traced(Name(part.name, span), self.scout.lookup(Name(part.name, span), None, None), ())
            else:
                args = [done[id(a)] for a in part.args]
                if part.op in ("lower", "upper"):
                    made = self.one_sided(part.op, args, node)
                else:
                    over = dims if part.dims is not None else None
                    made = self.apply(part.op, args, node, None, part.written, over)
                    if over is not None and made.id is not None:
                        result = self.dims_of(made)
                        shape = args[0].shape
                        kept = tuple(a if set(a.dims) <= set(result) else ONE for a in shape if not a.leading or ELLIPSIS in result)
                        made = replace(made, shape=kept, free=args[0].free)
            done[id(part)] = made
        return done[id(body)]

    def one_sided(self, side: str, args: list[Traced], node: Any) -> Traced:
        """A clamp from one side: torch's gradient at the bound is clamp's, not that of a tie of max."""
        t = self.type_of(args[0])
        if t is None or not is_float(t):
            return self.apply("max" if side == "lower" else "min", args, node)
        if self.is_tensor(args[1]):  # whose own gradient is torch's at an infinite bound too, where clamp's would be 0
            x, bound = args
            lower = side == "lower"
            kept, taken = (self.apply(op, [x, bound], node, node, "infix") for op in (("ge", "lt") if lower else ("le", "gt")))
            unordered = self.apply("stop", [self.apply("max" if lower else "min", [x, bound], node)], node)
            return self.apply("where", [kept, x, self.apply("where", [taken, bound, unordered], node, node, "where")], node, node, "where")
        infinite = self.number(float("inf") if side == "lower" else float("-inf"), node)
        return self.apply("clamp", [args[0], args[1], infinite] if side == "lower" else [args[0], infinite, args[1]], node)

    def check_operands(self, shown: str, row: Row, values: list[Traced], node: Any) -> None:
        types = [t for v in values if (t := self.type_of(v)) is not None]
        if row.floats and not any(is_float(t) for t in types if t != FLOAT):
            raise self.refuse(f"`{shown}` needs a float tensor", node, "cast it, as in `x.float()`")
        if "reduction" in row.signature.parameters and len(values) > 1 and types[0] != types[1]:
            help = "torch makes them one shape before it promotes them: cast one, as in `x.float()`"
            raise self.refuse(f"`{shown}` of {types[0]} and {types[1]}", node, help)
        if row.texts and row.all_texts[0] in ("any[D](input)", "all[D](input)") and str(types[0]) == "u8":
            raise self.refuse(f"`{shown}` of a u8 gives a u8 in torch", node, "compare it first, as in `x != 0`")

    # ------------------------------------------------------------------------------------------ constants and dims

    def row_dims(self, shown: str, given: dict[str, Any], shape: Axes, node: Any, row: Row) -> Dims:
        """The names of the dims that a torch call runs over (`dim` or `normalized_shape`) in an operand of some shape.  Refuses
        what has no name."""
        if "normalized_shape" in given:
            return self.trailing(shown, given["normalized_shape"], shape, node)
        chosen = self.constant(given.get("dim", Const(None)), node, f"`dim` of `{shown}`")
        if chosen is None:
            if row.signature.parameters["dim"].default is not None:
                raise self.refuse(f"`{shown}` needs `dim`", node, "as in `dim=-1`")
            found = named(shape)
            if not found:
                raise self.refuse(f"`{shown}` has no dims to run over", node, "its operand has none")
            return found
        several = chosen if isinstance(chosen, (tuple, list)) else (chosen,)
        if not several:
            raise self.refuse(f"`{shown}` with no dims", node, "leave `dim` away to run over all of them")
        places = [self.place(d, shape, node) for d in several]
        for at in places:
            if shape[at] == ONE:
                raise self.refuse("this dim has size one: it was reduced before", node)
        if len(set(places)) < len(places):
            raise self.refuse("a dim stands twice here", node)
        return tuple(d for at in sorted(places) for d in shape[at].dims)

    def trailing(self, shown: str, value: Any, shape: Axes, node: Any) -> Dims:
        """The dims that a `normalized_shape` names: sizes of the last dims, in order.  A number is the size of the dim there."""
        sizes = self.sizes([value], node)
        last = shape[len(shape) - len(sizes) :]
        for size, axis in zip(sizes, last, strict=False):
            number = None if isinstance(size, Axis) else self.integer(size)
            if number is not None and len(axis.dims) == 1 and not axis.leading and axis.dims != (str(number),):
                raise self.split_dim(axis.dims[0], (str(number),), node)
        forms = [self.length(s) if isinstance(s, Axis) else s for s in sizes]
        if not sizes or len(sizes) > len(shape) or forms != [self.length(a) for a in last]:
            raise self.refuse(f"`{shown}` needs the sizes of the last dims of {show_shape(shape)}", node, "as in `x.shape[-1:]`")
        return named(last)

    def as_asked(self, result: Traced, dtype: Any, node: Any) -> Traced:
        """What integers come to in the dtype that a call asks for: it wraps alike before and behind."""
        name, t = self.dtype(dtype, node), self.type_of(result)
        if t is None or not is_int(t) or str(t) == name:
            return result
        return replace(self.apply(name, [result], node), shape=result.shape, free=result.free)

    def reduced(self, shape: Axes, dims: Dims, keep: bool) -> Axes:
        gone = [bool(a.dims) and set(a.dims) <= set(dims) for a in shape]
        return tuple(ONE if g else a for a, g in zip(shape, gone, strict=True) if keep or not g)

    def run_over(self, op: str, x: Traced, dims: Dims, node: Any) -> Traced:
        """A reduction over dims; of an axis that is shorter than its dim over what is there."""
        short = [a for a in x.shape if a.short and set(a.dims) <= set(dims)]
        if not short:
            return self.apply(op, [x], node, None, "call", dims)
        for a in short:
            x = self.ends(x, a, NEUTRAL[op], node)
        if op != "mean":
            return self.apply(op, [x], node, None, "call", dims)
        mean = self.apply("sum", [x], node, None, "call", dims)
        for a in x.shape:
            if a.dims and set(a.dims) <= set(dims):
                count = self.number_of(self.length(a), node)
                if a.short:  # of a dim that is shorter than what is cut off nothing is left
                    count = self.apply("max", [count, self.number(0, node)], node)
                count = replace(count, expr=replace(count.expr, parens=isinstance(count.expr, Apply)))
                mean = self.apply("div", [mean, count], node, None, "infix")
        return mean

    def reduction(self, shown: str, x: Traced, how: Any, node: Any) -> Traced:
        """A loss reduced as its `reduction` says.  Refuses what torch does not know."""
        chosen = self.constant(how, node, f"`reduction` of `{shown}`")
        if chosen == "none" or x.id is None:
            return x
        if chosen not in ("mean", "sum") and not (chosen == "batchmean" and shown.endswith("kl_div")):
            raise self.refuse(f"there is no reduction {chosen!r}", node, "it is 'none', 'mean' or 'sum'")
        dims = named(x.shape)
        if not dims:
            return x
        if chosen != "batchmean":
            return replace(self.run_over(chosen, x, dims, node), shape=(), free=False)
        if x.shape[0].leading:
            message = f"`{shown}` divides by the size of the first dim, one of `...`"
            raise self.refuse(message, node, "name all dims in the parameter's type")
        total, rows = self.run_over("sum", x, dims, node), self.lift(self.size(x.shape[0], node), node)
        return replace(self.apply("div", [total, rows], node, None, "infix"), shape=(), free=False)

    def dtype(self, value: Any, node: Any) -> str:
        """A dtype's name in the language, from `torch.float32`, `x.dtype` or a tensor that has it."""
        if isinstance(value, Traced):
            value = self.dtype_of(value, node)
        if isinstance(value, Dtype):
            return value.name
        known = str(value.value).removeprefix("torch.") if isinstance(value, Const) else ""
        if known in TORCH:
            return TORCH[known].name
        if isinstance(value, Const) and value.value in DTYPES:
            return str(value.value)
        known = ", ".join(d for d in WRITTEN if d in DTYPES)
        raise self.refuse("this is no dtype of kgen's", node, f"dtypes are {known}, as `torch.float32` or `x.dtype`")

    def dtype_of(self, x: Traced, node: Any) -> Dtype:
        t = self.type_of(x)
        if t is None:
            raise Refused
        name = dtype_name(t)
        if not name:
            raise self.refuse(f"the dtype of this value is {t}: it has no name", node, "cast an operand first, as in `x.float()`")
        return Dtype(name)

    # ------------------------------------------------------------------------------------------ rows with code of their own

    def greatest(self, shown: str, row: Row, name: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """`max(x, y)`; or the values and their places along one dim; None for the greatest of all."""
        other = args[1] if len(args) > 1 else kwargs.get("other")
        if isinstance(other, Traced) and len(args) + len(kwargs) == 2:
            return self.apply(name, [self.lift(args[0], node), other], node)
        if len(args) < 2 and "dim" not in kwargs and "axis" not in kwargs:
            return None
        given = self.bound(shown, row, args, kwargs, node)
        values = {"input": self.kept("input", self.lift(given["input"], node), node)}
        given["input"] = values["input"]
        texts = row.all_texts
        return Several(
            (self.by_text(shown, row, dict(given), node, texts[0]), self.by_text(shown, row, dict(given), node, texts[1])),
            ("values", "indices"),
        )

    def call_to(self, shown: str, row: Row, given: dict[str, Any], node: ast.Call) -> Traced:
        x = self.lift(given["input"], node)
        target = given["dtype"]
        if isinstance(target, Const) and target.value == "device":  # `x.device`, the one that there is
            return x
        if isinstance(target, Const) and isinstance(target.value, str):
            raise self.refuse("a kernel runs where its tensors are", node, "move tensors outside the kernel")
        return replace(self.cast(self.dtype(target, node), x, node), shape=x.shape, free=x.free, owner=x.owner)

    def cast(self, name: str, x: Traced, node: Any) -> Traced:
        """torch's cast of a value to a dtype by its name: of few bits it saturates where torch does, with the gradient of the identity
        all the same."""
        saturated = self.saturated.get(x.id) if x.id is not None else None
        if saturated is not None:
            x = self.apply("straight_through", [x, saturated], node)
        t = self.type_of(x)
        if t is None or t == DTYPES.get(name) or not saturates(name):
            return self.apply(name, [x], node)
        x = x if is_float(t) else self.apply("f32", [x], node)
        made = self.apply(name, [x], node, dims=("saturate",))
        if made.id is not None:
            self.saturated[made.id] = x
        return made

    call_type = call_to

    def call_type_as(self, shown: str, row: Row, given: dict[str, Any], node: ast.Call) -> Traced:
        return self.call_to(shown, row, {"input": given["input"], "dtype": self.lift(given["other"], node)}, node)

    def size_call(self, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        x = self.lift(args[0], node)
        chosen = args[1] if len(args) > 1 else kwargs.get("dim", Const(None))
        if self.is_none(chosen):
            return Shape(x.shape, x)
        return self.size(x.shape[self.place(self.constant(chosen, node, "`dim`"), x.shape, node)], node)

    def call_dim(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Const:
        return self.rank(self.lift(given["input"], node), node)

    def rank(self, x: Traced, node: Any) -> Const:
        if any(a.leading for a in x.shape):
            raise self.refuse("the number of dims is not known: `...` stands for any number", node, "name all dims in the parameter's type")
        return Const(len(x.shape))

    def call_numel(self, shown: str, row: Row, given: dict[str, Any], node: ast.Call) -> Traced:
        x = self.lift(given["input"], node)
        self.refuse_short(shown, [x], node)
        if not named(x.shape):
            return self.number(1, node)
        return replace(self.apply("size", [x], node, None, "call", named(x.shape)), shape=(), free=False)

    def call_cross_entropy(self, shown: str, row: Row, given: dict[str, Any], node: ast.Call) -> Traced:
        """Classes along dim 1 (0 of a single row), as torch has them; the mean is over the rows that are not ignored."""
        x, target = self.kept("input", self.lift(given["input"], node), node), self.kept("target", self.lift(given["target"], node), node)
        for k in ("size_average", "reduce"):
            if not self.is_none(given[k]):
                raise self.refuse(f"kgen knows `{shown}` with {k}=None alone", self.keyword(node, k))
        if x.id is None or target.id is None:
            return self.poison(self.span(node))
        if any(a.leading for a in x.shape) or not x.shape:
            help = "name all dims in the parameter's type, as in `x: T[B, V]`"
            raise self.refuse(f"`{shown}` has its classes along dim 1, which is not known in {show_shape(x.shape)}", node, help)
        self.check_operands(shown, row, [x], node)
        at = min(1, len(x.shape) - 1)
        self.refuse_short(shown, [replace(x, shape=x.shape[at : at + 1])], node)
        rows = (*x.shape[:at], *x.shape[at + 1 :])
        if target.shape != rows or is_float(self.scout.values[target.id].type):
            raise self.refuse(f"`{shown}` takes a class for each row: an integer tensor {show_shape(rows)}", node)
        smoothing = given["label_smoothing"]
        text = row.all_texts[0 if isinstance(smoothing, Const) and smoothing.value == 0 else 1]
        values = {k: self.lift(given[k], node) for k in ("ignore_index", "label_smoothing")}
        values |= {"input": x, "target": replace(target, shape=self.without(x.shape, at, ONE))}
        loss = self.evaluate(text, tuple(row.signature.parameters), values, x.shape[at].dims, node)
        loss = replace(loss, shape=rows, free=False)
        counted = self.apply("ne", [target, values["ignore_index"]], node, None, "infix")
        if not self.is_none(given["weight"]):
            if text != row.all_texts[0]:
                help = "weigh the loss of each row, as in `w[t] * F.cross_entropy(x, t, reduction='none')`"
                raise self.refuse(f"`{shown}` smooths labels and weighs classes here", node, help)
            counted = self.class_weights(shown, self.lift(given["weight"], node), x.shape[at], target, counted, node)
            loss = self.apply("mul", [loss, counted], node, node, "infix")
        how = self.constant(given["reduction"], node, f"`reduction` of `{shown}`")
        if how != "mean" or not rows:
            return self.reduction(shown, loss, given["reduction"], node)
        total = self.reduction(shown, loss, Const("sum"), node)
        count = self.reduction(shown, counted, Const("sum"), node)
        return replace(self.apply("div", [total, count], node, None, "infix"), shape=(), free=False)

    def class_weights(self, shown: str, weight: Traced, classes: Axis, target: Traced, counted: Traced, node: Any) -> Traced:
        """The weight of each row's class, 0 of a row that does not count."""
        if weight.shape != (classes,):
            raise self.refuse(f"`{shown}` weighs [{classes}] classes by {show_shape(weight.shape)}", node, "one weight for each class")
        found = self.looked_up(weight, 0, target, node)
        made = self.apply("where", [counted, found, self.number(0, node)], node, node, "where")
        return self.kept("weights", replace(made, shape=target.shape, free=False), node)

    def filled(self, value: Any, given: dict[str, Any], node: Any) -> Traced:
        x = self.lift(given["input"], node)
        if x.id is None:
            return x
        if isinstance(value, Traced) and self.is_tensor(value):
            raise self.refuse("this takes a number", node)
        name = self.dtype_of(x, node).name if self.is_none(given["dtype"]) else self.dtype(given["dtype"], node)
        return replace(self.apply(name, [self.lift(value, node)], node), shape=x.shape)

    def call_lerp(self, shown: str, row: Row, given: dict[str, Any], node: ast.Call) -> Traced:
        """As torch has it, from the nearer end: the other end itself at a weight of 1, and NaN where the nearer one is infinite."""
        near, far = "input + weight * (end - input)", "end - (end - input) * (1 - weight)"
        weight = given["weight"].value if isinstance(given["weight"], Const) else None
        text = f"{near} if abs(weight) < 0.5 else {far}"
        if isinstance(weight, (int, float)):
            text = near if abs(weight) < 0.5 else far
        return self.by_text(shown, row, given, node, text)

    def call_zeros_like(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.filled(Const(0), given, node)

    def call_ones_like(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.filled(Const(1), given, node)

    def call_full_like(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.filled(given["fill_value"], given, node)

    def call_arange(self, shown: str, row: Row, given: dict[str, Any], node: ast.Call) -> Traced:
        """The positions along an axis whose size is `end - start`, from `start` on."""
        start, end = (Const(0), given["start"]) if self.is_none(given["end"]) else (given["start"], given["end"])
        first, last = (self.form(e, node) if isinstance(e, Traced) or self.is_whole(e) else None for e in (start, end))
        size = _sum(last, first, -1) if first is not None and last is not None else {}
        number = self.integer(size)
        if not size or number is not None and number < 1:
            raise self.refuse(f"`{shown}` counts along a dim", node, "give it the dim's size, as in `torch.arange(x.shape[-1])`")
        if self.constant(given["step"], node, "`step`") != 1:
            raise self.refuse(f"`{shown}` counts by ones", node, "multiply it: `2 * torch.arange(n)` counts by twos")
        axis = self.axis_of(size, node) if number is None else Axis((self.literal(number, [], node),))
        made = self.index_of(axis.dims, node)
        if first:
            made = self.apply("add", [made, self.number_of(first, node)], node, node, "infix")
        made = replace(made, shape=(axis,), free=False)
        return made if self.is_none(given["dtype"]) else self.apply(self.dtype(given["dtype"], node), [made], node)

    def call_one_hot(self, shown: str, row: Row, given: dict[str, Any], node: ast.Call) -> Traced:
        """Numbers against the positions along one more axis, of as many elements as there are classes."""
        x, classes = self.lift(given["tensor"], node), given["num_classes"]
        if isinstance(classes, Const):
            raise self.refuse(f"`{shown}` counts along a dim", node, "give it the dim's size, as in `F.one_hot(t, w.shape[0])`")
        places = self.call_arange(shown, row, {"start": classes, "end": Const(None), "step": Const(1), "dtype": Const(None)}, node)
        same = self.apply("eq", [replace(x, shape=(*x.shape, ONE)), places], node, node, "infix", parens=True)
        return self.apply("i64", [same], node)

    @staticmethod
    def is_whole(value: Any) -> bool:
        return isinstance(value, Const) and isinstance(value.value, int)

    def call_group_norm(self, shown: str, row: Row, given: dict[str, Any], node: ast.Call) -> Traced:
        """Groups of dim 1, normalised over what is behind it."""
        x, groups = self.lift(given["input"], node), self.constant(given["num_groups"], node, "`num_groups`")
        if len(x.shape) < 2 or any(a.leading for a in x.shape):
            raise self.refuse(f"`{shown}` has its channels along dim 1, which is not known in {show_shape(x.shape)}", node,
                              "name all dims in the parameter's type, as in `x: T[B, C, S]`")  # fmt: skip
        self.refuse_short(shown, [x], node)
        channels = x.shape[1]
        if not isinstance(groups, int) or groups < 1:
            raise self.refuse(f"`{shown}` has {groups!r} groups", node)
        if groups > 1 and not self.is_of(channels.dims[0], groups):
            raise self.split_dim(channels.dims[0], (str(groups), None), node)
        rest = [Axis(channels.dims[1:] if groups > 1 else channels.dims), *x.shape[2:]]
        parted = replace(x, shape=(x.shape[0], Axis(channels.dims[:1] if groups > 1 else ()), *rest))
        values: dict[str, Any] = {"input": self.kept("input", parted, node), "eps": self.lift(given["eps"], node)}
        for k in ("weight", "bias"):
            if not self.is_none(given[k]):
                weight = self.lift(given[k], node)
                axes = (parted.shape[1], parted.shape[2], *(ONE for _ in x.shape[2:]))
                if weight.id is not None and weight.shape != (channels,):
                    self.meet([weight, replace(x, shape=(channels,))], self.span(node))
                values[k] = replace(weight, shape=axes)
        text = self.text_of(shown, row, given, tuple(row.signature.parameters), node)
        made = self.evaluate(text, tuple(row.signature.parameters), values, named(tuple(rest)), node)
        return replace(made, shape=x.shape, free=False)

    def call_instance_norm(self, shown: str, row: Row, given: dict[str, Any], node: ast.Call) -> Traced:
        """Each channel (dim 1) of each element normalised over what is behind it."""
        x = self.kept("input", self.lift(given["input"], node), node)
        for k, known in (("running_mean", None), ("running_var", None), ("use_input_stats", True)):
            if self.constant(given[k], node, f"`{k}` of `{shown}`") is not known:
                raise self.refuse(f"kgen knows `{shown}` with {k}={known} alone", self.keyword(node, k))
        if len(x.shape) < 3 or any(a.leading for a in x.shape):
            raise self.refuse(f"`{shown}` has its channels along dim 1, which is not known in {show_shape(x.shape)}", node,
                              "name all dims in the parameter's type, as in `x: T[B, C, S]`")  # fmt: skip
        self.refuse_short(shown, [x], node)
        values: dict[str, Any] = {"input": x, "eps": self.lift(given["eps"], node)}
        for k in ("weight", "bias"):
            if not self.is_none(given[k]):
                weight = self.lift(given[k], node)
                if weight.id is not None and weight.shape != (x.shape[1],):
                    self.meet([weight, replace(x, shape=x.shape[1:2])], self.span(node))
                values[k] = replace(weight, shape=(x.shape[1], *(ONE for _ in x.shape[2:])))
        text = self.text_of(shown, row, given, tuple(row.signature.parameters), node)
        made = self.evaluate(text, tuple(row.signature.parameters), values, named(x.shape[2:]), node)
        return replace(made, shape=x.shape, free=False)

    def call_var_mean(self, shown: str, row: Row, given: dict[str, Any], node: ast.Call) -> Several:
        """A variance or a deviation, and the mean."""
        spread = METHODS[names.places(row)[0].removesuffix("_mean")]
        given = given | {"input": self.kept("input", self.lift(given["input"], node), node)}
        mean = {k: given[k] for k in ("input", "dim", "keepdim")}
        return Several((self.by_text(shown, spread, dict(given), node), self.by_text(shown, METHODS["mean"], mean, node)))

    call_std_mean = call_var_mean

    def call_nan_to_num(self, shown: str, row: Row, given: dict[str, Any], node: ast.Call) -> Traced:
        """Numbers in the places of NaN and the infinities, which are the dtype's greatest where none are said."""
        x = self.kept("input", self.lift(given["input"], node), node)
        t = self.type_of(x)
        if t is None or not is_float(t):
            return x
        ends = {}
        for k, sign in (("posinf", 1), ("neginf", -1)):
            if self.is_none(given[k]) and (known := DTYPES.get(dtype_name(t))) is None:
                raise self.refuse(f"the greatest {dtype_name(t) or t} is known only at the call", node, "give `posinf` and `neginf`")
            ends[k] = Const(sign * known.largest) if self.is_none(given[k]) and known is not None else given[k]
        other = Const(0.0) if self.is_none(given["nan"]) else given["nan"]
        given = {"top": ends["posinf"], "low": ends["neginf"], "other": other}
        values = {"input": x, **{k: self.lift(v, node) for k, v in given.items()}}
        text = "other if isnan(input) else top if input == inf else low if input == -inf else input"
        return self.evaluate(text, tuple(values), values, None, node)

    # ------------------------------------------------------------------------------------------ what is not known

    def unknown_method(self, name: str, x: Traced, node: Any) -> Refused:
        if name.endswith("_") and not name.startswith("_") and name[:-1]:
            if names.out_of_place(name) and x.owner and x.owner not in self.scout.params:
                help = f"write `.{name[:-1]}`, or begin a line with it, where no other name has that tensor"
                return self.refuse(f"`.{name}` writes in place", node, help)
            owner = x.owner if x.owner in self.scout.params else "p"
            return self.refuse(
                f"`.{name}` writes in place", node,
                f"compute the new value and return it; the result `{owner}'` (declared behind `->`) is written into `{owner}`",
            )  # fmt: skip
        help = names.advice(name) or did_you_mean(closest(name, list(METHODS)))
        return self.refuse(f"kgen does not know the method `.{name}`", node, help)

    def unknown_function(self, shown: str, name: str, node: Any) -> Refused:
        known = [n.rpartition(".")[2] for r in names.ROWS for n in names.places(r)]
        torch = sys.modules.get("torch")
        if names.advice(name) or torch is not None and shown.split(".")[0] in ("torch", "F"):
            return self.refuse(f"kgen does not know `{shown}`", node, names.advice(name) or did_you_mean(closest(name, known)))
        close = closest(name, [*OPS, *REDUCTIONS, *known])
        return self.refuse(
            f"`{shown}` cannot be traced: it is no plain Python function, and no function of kgen's or torch's", node, did_you_mean(close)
        )
