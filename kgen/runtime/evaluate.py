"""A kernel's formula evaluated by PyTorch, operator by operator.

Three readings of the same graph: "eager" (what a user's own torch code gives: every operator in its operands' dtypes),
"kernel" (16-bit floats widened to f32, one rounding at the end: the meaning of DESIGN.md section 3) and "exact" (floats
as f64).  It is the reference of `kgen check`, and what runs where there is no compiler.
"""

from __future__ import annotations

import math
from typing import Any

from kgen import host
from kgen.check import Kernel, Value
from kgen.errors import KgenError
from kgen.ir import exact
from kgen.ops import OPS, REDUCTIONS, ROWS, SCANS
from kgen.places import unguarded
from kgen.runtime import coded, joined, scanned, selected, unsigned
from kgen.runtime.arguments import follow
from kgen.searches import SEARCHES
from kgen.types import ELLIPSIS, FLOAT, TORCH, Dims, DType, Float, Number, is_variable, is_wide, promote, resolve, shown_dims, u64
from kgen.values import cast_to

MODES = ("eager", "kernel", "exact")


class Evaluator:
    """Evaluates `kernel` on `arguments` (tensors and numbers by parameter name), in one of MODES.

    Every value is a tensor whose last dims are the kernel's named dims in one order (1 where it lacks one), so that
    torch's own broadcasting does what the names ask for.
    """

    def __init__(self, kernel: Kernel, arguments: dict[str, Any], mode: str = "kernel"):
        """`arguments` are torch tensors and numbers by parameter; `mode` is "kernel" (as kernels round), "eager" (as torch
        computes op by op) or "exact" (in float64)."""
        import torch

        if kernel.joined:
            arguments = dict(zip(arguments, joined.split(kernel, arguments)[1], strict=True))
        self.torch, self.kernel, self.arguments, self.mode = torch, kernel, arguments, mode
        named = [d for p in kernel.params for d in p.dims or () if d != ELLIPSIS]
        self.sizes = kernel.literals | {
            d: arguments[p.name].shape[k - len(p.dims)]
            for p in kernel.params
            if p.dims is not None
            for k, d in enumerate(p.dims)
            if d != ELLIPSIS
        }
        follow(kernel, self.sizes, arguments)
        self.order = list(dict.fromkeys([*named, *self.sizes]))
        self.device = next((a.device for a in arguments.values() if isinstance(a, torch.Tensor)), "cpu")
        stored = {p.dtype: str(arguments[p.name].dtype) for p in kernel.params if p.is_tensor and is_variable(p.dtype)}
        self.binding = {variable: TORCH[dtype.removeprefix("torch.")] for variable, dtype in stored.items()}
        leading = [p for p in kernel.params if p.dims and ELLIPSIS in p.dims]
        heads = [arguments[p.name].shape[: arguments[p.name].dim() + 1 - len(p.dims or ())] for p in leading]
        self.batch = tuple(torch.broadcast_shapes(*heads))

    def run(self) -> tuple:
        """The results in order, each rounded to its dtype and expanded to its dims (primed ones too; nothing is written)."""
        values = self.values()
        return tuple(joined.joined(r, self.finish(values[r.value], r.dims, self.dtype(r.dtype))) for r in self.kernel.results)

    def values(self) -> list:
        done: list[Any] = []
        last = self.last_uses()
        for k, v in enumerate(self.kernel.values):
            done.append(self.value(v, [done[a] for a in v.args]))
            for a in v.args:
                if last[a] == k:
                    done[a] = None  # rows of millions of elements would fill the memory
        return done

    def last_uses(self) -> list[int]:
        """For each value the last one that it enters (the end for results)."""
        last = list(range(len(self.kernel.values)))
        for k, v in enumerate(self.kernel.values):
            for a in v.args:
                last[a] = k
        for r in self.kernel.results:
            last[r.value] = len(last)
        return last

    def count(self, dims: Dims) -> int:
        """How many elements the dims have together."""
        return math.prod(math.prod(self.batch) if d == ELLIPSIS else self.sizes[d] for d in dims)

    def dtype(self, name: str):
        """Torch's dtype for a declared one."""
        return getattr(self.torch, resolve(name, self.binding).torch)

    def float_dtype(self, name: str):
        """Torch's dtype in which a declared float enters a computation: of few bits it has no arithmetic."""
        return self.torch.float32 if resolve(name, self.binding).coded else self.dtype(name)

    def lift(self, x):
        """A stored value as this reading computes with it."""
        torch = self.torch
        if coded.coded(x.dtype) is not None:  # of which torch has no arithmetic
            x = x.to(torch.float32)
        if coded.packed(x.dtype):
            return x.view(torch.uint8)
        if unsigned.is_stored(x.dtype):
            return unsigned.lifted(x)
        if self.mode == "eager" or not x.dtype.is_floating_point:
            return x
        return x.to(torch.float64) if self.mode == "exact" else x.to(torch.float32) if x.dtype.itemsize == 2 else x

    def spread(self, x, dims: Dims):
        """A tensor with `dims` as one with all named dims, in order."""
        named = [d for d in dims if d != ELLIPSIS]
        lead = x.dim() - len(named)
        x = x.permute((*range(lead), *(lead + named.index(d) for d in self.order if d in named)))
        for k, d in enumerate(self.order):
            if d not in named:
                x = x.unsqueeze(lead + k)
        return x

    def finish(self, x, dims: Dims, dtype):
        """A value as a tensor of `dims` in `dtype`: from the order of all dims that values are kept in to the result's own,
        broadcast to its sizes."""
        torch = self.torch
        if not isinstance(x, torch.Tensor):
            x = torch.tensor(x, device=self.device, dtype=torch.float64 if isinstance(x, float) else None)
            narrow = coded.coded(dtype) is not None or dtype.is_floating_point and dtype.itemsize < 4
            if self.mode == "kernel" and x.is_floating_point() and narrow:
                x = x.to(torch.float32)  # in which it is computed
        x = self.convert(x, dtype)
        if x.dim() < len(self.order):  # made of numbers alone
            x = x.reshape([1] * len(self.order))
        lead = x.dim() - len(self.order)
        named = [d for d in dims if d != ELLIPSIS]
        x = x.permute(
            (*range(lead), *(lead + self.order.index(d) for d in named), *(lead + k for k, d in enumerate(self.order) if d not in named))
        )
        x = x.reshape(x.shape[: lead + len(named)])
        batch = self.batch if ELLIPSIS in dims else ()
        if ELLIPSIS not in dims and lead:
            x = x.reshape(x.shape[lead:])
        return x.expand((*batch, *(self.sizes[d] for d in named)))

    def convert(self, x, dtype):
        """A cast: float to integer saturates and takes NaN to 0, everything else is torch's."""
        torch = self.torch
        if (row := coded.coded(dtype)) is not None:
            return coded.rounded(row, (), x)
        if coded.packed(dtype):
            return x.to(torch.uint8).view(dtype)
        if unsigned.is_stored(dtype):
            wide = TORCH[str(dtype).removeprefix("torch.")]
            return unsigned.stored(unsigned.saturated(x, wide) if x.dtype.is_floating_point else x, dtype)
        if x.dtype.is_floating_point and not dtype.is_floating_point and dtype != torch.bool:
            low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
            y = torch.nan_to_num(x.to(torch.float64), nan=0.0, posinf=float(high), neginf=float(low)).clamp(float(low), float(high))
            top = y >= float(high)
            return torch.where(top, torch.full((), high, dtype=dtype), torch.where(top, torch.zeros((), dtype=y.dtype), y).to(dtype))
        if x.dtype == torch.float64 and dtype in (torch.float16, torch.bfloat16) and self.mode != "eager":
            return coded.round_odd(x).to(dtype)  # torch goes by way of f32 and rounds twice
        return x.to(dtype)

    def value(self, v: Value, args: list) -> Any:
        """One value of the kernel from those of its operands: a tensor with a place for every dim, or a number."""
        torch = self.torch
        attr = str(v.attr)
        if v.op == "param":
            given = self.arguments[attr]
            return given if isinstance(v.type, Number) else self.lift(self.spread(given, v.dims))
        if v.op == "lit":
            return float(exact(attr)) if v.type == FLOAT else int(exact(attr))
        if v.op == "const":
            return {"pi": math.pi, "inf": math.inf, "nan": math.nan}[attr]
        if v.op == "size":
            return self.count((attr,))
        if v.op == "index" and attr == ELLIPSIS:
            return torch.arange(self.count((attr,)), device=self.device).reshape((*self.batch, *(1 for _ in self.order)))
        if v.op == "index":
            k = self.order.index(attr)
            return torch.arange(self.sizes[attr], device=self.device).reshape([-1 if j == k else 1 for j in range(len(self.order))])
        if isinstance(v.type, Number):
            return host.evaluate(v.op, args, v.type)
        if v.op == "cast":
            x = (
                args[0]
                if isinstance(args[0], torch.Tensor)
                else torch.tensor(args[0], device=self.device, dtype=torch.float64 if isinstance(args[0], float) else None)
            )
            name, how = cast_to(v)
            row, given = resolve(name, self.binding), self.kernel.values[v.args[0]].type
            if self.dtype(name).is_floating_point:
                narrows = row.bits < 64 and self.mode != "eager"
                x = unsigned.round_odd(x, given) if narrows else unsigned.number(x, given)
            x, *bits = torch.broadcast_tensors(x, *args[1:]) if how or row.coded else (x,)  # the bits' dims are its own, rounded or not
            if how and row.narrow or row.coded:
                return coded.differentiable(row, how, x, self.lift(coded.nearest(row, how, x.detach(), *bits)))
            return x if self.mode == "exact" and self.keeps(v) else self.lift(self.convert(x, self.dtype(name)))
        if v.op == "place":
            empty = next((d for d in v.attr if d not in v.dims and self.sizes[d] == 0), "")
            bare = unguarded(self.kernel.values, [r.value for r in self.kernel.results]) if empty else []
            if any(v is one for one in bare) and any(self.count(r.dims) for r in self.kernel.results):
                raise KgenError(f"{self.kernel.name}: a place along {shown_dims(empty)}, which has size 0")
            return self.placed(v, args[0], args[1:])
        if v.op in REDUCTIONS and v.attr or v.op == "pick":
            return self.reduce(v, args)
        return scanned.scan(self, v, args) if v.op in SCANS else self.operate(v, args)

    def keeps(self, v: Value) -> bool:
        """Whether a cast rounds nothing: to T32, of what is computed in that dtype."""
        t = self.kernel.values[v.args[0]].type
        return is_wide(str(v.attr)) and isinstance(t, Float) and t.compute(self.binding) is resolve(str(v.attr), self.binding)

    def operate(self, v: Value, args: list):
        """A row of the table applied to tensors (numbers are made ones), in the dtype that the mode computes it in."""
        torch = self.torch
        row = ROWS[v.op]
        tensors = [a if isinstance(a, torch.Tensor) else self.number(a, k, v, args) for k, a in enumerate(args)]
        if row.rule == "words":
            return row.reference(torch)(*(t.to(torch.int64) for t in tensors))
        if (wide := self.unsigned(v)) is not None:
            return unsigned.operate(v.op, wide, [self.convert(t, torch.int64) for t in tensors])
        if not self.signed(v):  # there the bits of a u64 are those of an i64
            tensors = [unsigned.number(t, self.kernel.values[a].type) for t, a in zip(tensors, v.args, strict=True)]
        if row.rule == "code":
            return coded.operated(v.op, *tensors)
        if (
            row.rule in ("arith", "float", "compare", "bits", "shift")
            and len(tensors) > 1
            and not (len(tensors) == 2 and row.name in ("add", "sub", "mul", "div") and self.mode == "eager")
        ):
            common = tensors[0]
            wanted = self.common(v)
            tensors = [t.to(wanted) for t in tensors] if wanted is not None else [common, *tensors[1:]]
        if row.rule == "float" and len(tensors) == 1 and not tensors[0].dtype.is_floating_point:
            tensors = [tensors[0].to(torch.float64 if self.mode == "exact" else torch.float32)]
        if row.rule == "where":
            wanted = self.common(v)
            if wanted is None and isinstance(v.type, Float):  # of two numbers, as torch has it
                wanted = torch.float64 if self.mode == "exact" else torch.float32
            tensors = [tensors[0].to(torch.bool), *(t.to(wanted) for t in tensors[1:])]
        if row.name in ("floordiv", "mod") and not any(t.dtype.is_floating_point for t in tensors):
            return self.divide(row.name, *tensors)
        if row.name == "sub" and self.mode == "eager":  # which refuses bools beside floats
            tensors = [t.to(torch.uint8) if t.dtype == torch.bool else t for t in tensors]
        if row.eager.widen and self.mode == "kernel" and tensors[0].dtype == torch.float32:
            return row.reference(torch)(*(t.double() for t in tensors)).to(torch.float32)
        found = row.reference(torch)(*tensors)
        return row.eager.exact(torch, tensors[0], found) if self.mode == "exact" and row.eager.exact is not None else found

    def unsigned(self, v: Value) -> DType | None:
        """The unsigned integer of 16 bits or more in which the operands of `v` meet, if they do."""
        operands = [self.kernel.values[a] for a in v.args][OPS[v.op].rule == "where" if v.op in OPS else 0 :]
        t = promote([(o.type, bool(o.dims)) for o in operands])
        return t if isinstance(t, DType) and t in unsigned.WIDE and ROWS[v.op].rule not in ("float", "code") else None

    def signed(self, v: Value) -> bool:
        """Whether the operands of `v` meet in a signed integer, and are computed with as such."""
        operands = [self.kernel.values[a] for a in v.args[ROWS[v.op].rule == "where" :]]
        t = promote([(o.type, bool(o.dims)) for o in operands])
        return isinstance(t, DType) and t.is_int and ROWS[v.op].rule not in ("float", "code")

    def divide(self, name: str, x, y):
        """Integer // and %: by zero 0 and x (torch raises), and the least by -1 wraps (the processor traps)."""
        torch = self.torch
        plain = (y != 0) & (y != -1) if y.dtype != torch.uint8 else y != 0
        found = (torch.floor_divide if name == "floordiv" else torch.remainder)(x, torch.where(plain, y, 1))
        by_zero, by_minus_one = (0, -x) if name == "floordiv" else (x, 0)
        return torch.where(plain, found, torch.where(y == 0, by_zero, by_minus_one)).to(found.dtype)

    def number(self, a, k: int, v: Value, args: list):
        torch = self.torch
        return torch.tensor(a, device=self.device, dtype=torch.float64 if isinstance(a, float) else None)

    def common(self, v: Value):
        """The dtype in which the operands of `v` meet, as torch would have it for this reading."""
        operands = [self.kernel.values[a] for a in v.args]
        if OPS[v.op].rule == "where":
            operands = operands[1:]
        t = promote([(o.type, bool(o.dims)) for o in operands])
        if OPS[v.op].rule == "float" and not isinstance(t, Float):
            t = Float(frozenset({"f32"}))
        if isinstance(t, Number):
            return None
        if isinstance(t, DType):
            return getattr(self.torch, t.torch)
        if self.mode == "exact":
            return self.torch.float64
        found = [self.float_dtype(name) for name in t.of]
        joined = found[0]
        for other in found[1:]:
            joined = self.torch.promote_types(joined, other)
        return self.torch.float32 if self.mode == "kernel" and joined.itemsize == 2 else joined

    def reduce(self, v: Value, args: list):
        """A reduction with its dims kept, as 1.  Raises `KgenError` for the greatest or least of no elements."""
        if v.op == "pick":
            return self.pick(v, *args)
        if v.op in SEARCHES:
            return selected.search(self, v, args)
        if self.kernel.values[v.args[0]].type is u64 and v.op in ("max", "min", "argmax", "argmin"):  # in the order of its carrier
            found = self.over(v, unsigned.turned(args[0]))
            return unsigned.turned(found) if v.op in ("max", "min") else found
        return self.over(v, args[0])

    def over(self, v: Value, x):
        """`reduce` of a value by what reduces one."""
        torch, over = self.torch, tuple(v.attr)
        x = self.whole(x, over)
        dims = self.places(x, over)
        empty = any(x.shape[d] == 0 for d in dims)
        if v.op in ("max", "min", "argmax", "argmin") and empty:
            if any(self.count(r.dims) for r in self.kernel.results):  # as `arguments.refuse_empty` has it
                lacking = next(d for d in over if self.count((d,)) == 0)
                told = shown_dims(f"{v.op}[{', '.join(over)}] of no elements: dim {lacking} has size 0")
                raise KgenError(f"{self.kernel.name}: {told}")
            shape = [1 if d in dims else s for d, s in enumerate(x.shape)]
            return torch.zeros(shape, device=x.device, dtype=torch.int64 if v.op.startswith("arg") else x.dtype)
        if v.op in ("argmax", "argmin"):
            kept = [d for d in range(x.dim()) if d not in dims]
            flat = x.permute((*kept, *dims)).reshape(*(x.shape[d] for d in kept), math.prod(x.shape[d] for d in dims))
            found = getattr(torch, v.op)(flat, dim=-1)
            for d in sorted(dims):
                found = found.unsqueeze(d)
            return found
        function = getattr(torch, REDUCTIONS[v.op].torch)
        if v.op in ("any", "all"):
            x = x.to(torch.bool)
        elif not x.dtype.is_floating_point and v.op in ("sum", "prod"):
            x = x.to(torch.int64)
        if not dims:  # `...` of rank 0
            return x
        if self.mode != "eager" and v.op in ("sum", "mean") and x.dtype.is_floating_point:  # torch's own may add one after the other
            total = _tree_sum(x, dims)
            return total / math.prod(x.shape[d] for d in dims) if v.op == "mean" else total
        if v.op in ("prod", "any", "all"):
            for d in dims:
                x = function(x, dim=d, keepdim=True)
            return x
        return function(x, dim=dims, keepdim=True)

    def whole(self, x, dims: Dims):
        """A value at its full size along `dims`: leading dims that another parameter widens, numbers along the named ones."""
        lead = x.dim() - len(self.order)
        head = list(x.shape[:lead])
        if ELLIPSIS in dims:
            x, head = x.expand((*self.batch, *x.shape[lead:])), list(self.batch)
        named = x.shape[len(head) :]
        return x.expand((*head, *(self.sizes[d] if d in dims else s for d, s in zip(self.order, named, strict=True))))

    def places(self, x, dims: Dims) -> list[int]:
        """Where the dims stand in a tensor."""
        lead = x.dim() - len(self.order)
        return [k for d in dims for k in (range(lead) if d == ELLIPSIS else [lead + self.order.index(d)])]

    def placed(self, v: Value, x, at: list):
        """The elements of x at places along the dims of `v`; 0 outside."""
        torch, over = self.torch, tuple(v.attr)
        x = self.whole(x, over)
        at = [e if isinstance(e, torch.Tensor) else torch.tensor(e, device=x.device) for e in at]
        rank = max(t.dim() for t in (x, *at))
        x, *at = (t.reshape([1] * (rank - t.dim()) + list(t.shape)) for t in (x, *at))
        dims = self.places(x, over)
        inside = torch.ones((), dtype=torch.bool, device=x.device)
        for e, d in zip(at, dims, strict=True):
            inside = inside & (e >= 0) & (e < x.shape[d])
        shape = torch.broadcast_shapes(*(t.shape for t in at), [1 if d in dims else n for d, n in enumerate(x.shape)])
        if 0 in x.shape:
            return torch.zeros((), dtype=x.dtype, device=x.device).expand(shape)
        index = [torch.arange(n, device=x.device).reshape([-1 if k == d else 1 for k in range(rank)]) for d, n in enumerate(x.shape)]
        for e, d in zip(at, dims, strict=True):
            index[d] = torch.where(inside, e.to(torch.int64), 0)
        return torch.where(inside, x[tuple(torch.broadcast_tensors(*index))], torch.zeros((), dtype=x.dtype, device=x.device))

    def pick(self, v: Value, x, index):
        """The elements of x along the dim of `v` at the indices; NaN, or 0 for integers, where an index lies outside."""
        torch = self.torch
        over = tuple(v.attr)
        x = self.whole(x, over)
        rank = max(x.dim(), index.dim())
        x, index = (t.reshape([1] * (rank - t.dim()) + list(t.shape)) for t in (x, index))
        (dim,) = self.places(x, over)
        size = x.shape[dim]
        outside = torch.full((), math.nan if x.dtype.is_floating_point else 0, dtype=x.dtype, device=x.device)
        shape = torch.broadcast_shapes(*(tuple(1 if k == dim else s for k, s in enumerate(t.shape)) for t in (x, index)))
        if size == 0:
            return outside.expand(shape)
        wide = x.expand(*(size if k == dim else s for k, s in enumerate(shape)))
        index = index.to(torch.int64)
        inside = (index >= 0) & (index < size)
        return torch.where(inside, torch.gather(wide, dim, torch.where(inside, index, 0).expand(shape)), outside)


def _tree_sum(x: Any, dims: list[int]) -> Any:
    """A sum by halves, so that no term passes through more than log2 of their number of additions."""
    import torch

    kept = [d for d in range(x.dim()) if d not in dims]
    shape = [1 if d in dims else s for d, s in enumerate(x.shape)]
    count = math.prod(x.shape[d] for d in dims)
    x = x.permute((*kept, *dims)).reshape(*(x.shape[d] for d in kept), count)
    if count == 0:
        return torch.zeros(shape, dtype=x.dtype, device=x.device)
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        odd = x[..., 2 * half :]
        x = torch.cat([x[..., :half] + x[..., half : 2 * half], odd], -1)
    return x.reshape(shape)
