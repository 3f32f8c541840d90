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
from kgen.ir import exact
from kgen.ops import OPS, REDUCTIONS
from kgen.types import DTYPES, ELLIPSIS, FLOAT, Dims, DType, Number

MODES = ("eager", "kernel", "exact")


class Evaluator:
    """Evaluates `kernel` on `arguments` (tensors and numbers by parameter name), in one of MODES.

    Every value is a tensor whose last dims are the kernel's named dims in one order (1 where it lacks one), so that
    torch's own broadcasting does what the names ask for.
    """

    def __init__(self, kernel: Kernel, arguments: dict[str, Any], mode: str = "kernel"):
        import torch

        self.torch, self.kernel, self.arguments, self.mode = torch, kernel, arguments, mode
        self.order = list(dict.fromkeys(d for p in kernel.params for d in p.dims or () if d != ELLIPSIS))
        self.sizes = {
            d: arguments[p.name].shape[k - len(p.dims)]
            for p in kernel.params
            if p.dims is not None
            for k, d in enumerate(p.dims)
            if d != ELLIPSIS
        }
        self.device = next((a.device for a in arguments.values() if isinstance(a, torch.Tensor)), "cpu")
        self.binding = {p.dtype: arguments[p.name].dtype for p in kernel.params if p.dims is not None and p.dtype not in DTYPES}
        self.batch = max(
            (arguments[p.name].dim() - len(p.dims) + 1 for p in kernel.params if p.dims is not None and ELLIPSIS in p.dims), default=0
        )

    def run(self) -> tuple:
        """The results in order, each rounded to its dtype and expanded to its dims (primed ones too; nothing is written)."""
        values = self.values()
        return tuple(self.finish(values[r.value], r.dims, self.dtype(r.dtype)) for r in self.kernel.results)

    def values(self) -> list:
        done: list[Any] = []
        for v in self.kernel.values:
            done.append(self.value(v, [done[a] for a in v.args]))
        return done

    def dtype(self, name: str):
        return self.binding.get(name) or getattr(self.torch, DTYPES[name].torch)

    def lift(self, x):
        """A stored value as this reading computes with it."""
        torch = self.torch
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
        torch = self.torch
        if not isinstance(x, torch.Tensor):
            x = torch.tensor(x, device=self.device)
        x = self.convert(x, dtype)
        if x.dim() < len(self.order):  # made of numbers alone
            x = x.reshape([1] * len(self.order))
        lead = x.dim() - len(self.order)
        named = [d for d in dims if d != ELLIPSIS]
        x = x.permute(
            (*range(lead), *(lead + self.order.index(d) for d in named), *(lead + k for k, d in enumerate(self.order) if d not in named))
        )
        x = x.reshape(x.shape[: lead + len(named)])
        batch = (
            tuple(
                torch.broadcast_shapes(
                    *(
                        self.arguments[p.name].shape[: self.arguments[p.name].dim() - len(p.dims) + 1]
                        for p in self.kernel.params
                        if p.dims and ELLIPSIS in p.dims
                    )
                )
            )
            if ELLIPSIS in dims
            else ()
        )
        if ELLIPSIS not in dims and lead:
            x = x.reshape(x.shape[lead:])
        return x.expand((*batch, *(self.sizes[d] for d in named)))

    def convert(self, x, dtype):
        """A cast: float to integer saturates and takes NaN to 0, everything else is torch's."""
        torch = self.torch
        if x.dtype.is_floating_point and not dtype.is_floating_point and dtype != torch.bool:
            low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
            y = torch.nan_to_num(x.to(torch.float64), nan=0.0, posinf=float(high), neginf=float(low)).clamp(float(low), float(high))
            top = y >= float(high)
            return torch.where(top, torch.full((), high, dtype=dtype), torch.where(top, torch.zeros((), dtype=y.dtype), y).to(dtype))
        if x.dtype == torch.float64 and dtype in (torch.float16, torch.bfloat16) and self.mode != "eager":
            return _round_odd(x).to(dtype)  # torch goes by way of f32 and rounds twice
        return x.to(dtype)

    def value(self, v: Value, args: list) -> Any:
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
            return self.sizes[attr]
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
            return self.lift(self.convert(x, self.dtype(attr)))
        if v.op in REDUCTIONS and v.attr or v.op == "pick":
            return self.reduce(v, args)
        return self.operate(v, args)

    def operate(self, v: Value, args: list):
        torch = self.torch
        row = OPS[v.op]
        tensors = [a if isinstance(a, torch.Tensor) else self.number(a, k, v, args) for k, a in enumerate(args)]
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
            tensors = [tensors[0].to(torch.bool), *(t.to(wanted) for t in tensors[1:])]
        if row.name in ("floordiv", "mod") and not any(t.dtype.is_floating_point for t in tensors):
            return self.divide(row.name, *tensors)
        if row.name == "sub" and self.mode == "eager":  # which refuses bools beside floats
            tensors = [t.to(torch.uint8) if t.dtype == torch.bool else t for t in tensors]
        return row.reference(torch)(*tensors)

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
        from kgen.types import Float, promote

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
        found = [self.dtype(name) for name in t.of]
        joined = found[0]
        for other in found[1:]:
            joined = self.torch.promote_types(joined, other)
        return self.torch.float32 if self.mode == "kernel" and joined.itemsize == 2 else joined

    def reduce(self, v: Value, args: list):
        torch = self.torch
        lead = args[0].dim() - len(self.order)
        dims = [d for name in v.attr for d in (range(lead) if name == ELLIPSIS else [lead + self.order.index(name)])]
        x = args[0].expand(
            *(
                s if k < lead else max(s, self.sizes[self.order[k - lead]]) if self.order[k - lead] in v.attr else s
                for k, s in enumerate(args[0].shape)
            )
        )
        if v.op == "pick":
            index = args[1]
            size = self.sizes[v.attr[0]]
            inside = (index >= 0) & (index < size)
            shape = torch.broadcast_shapes(*(tuple(1 if k == dims[0] else s for k, s in enumerate(t.shape)) for t in (x, index)))
            wide = x.expand(*(x.shape[dims[0]] if k == dims[0] else s for k, s in enumerate(shape)))
            found = torch.gather(wide, dims[0], torch.where(inside, index, 0).expand(shape))
            return torch.where(inside, found, torch.full((), math.nan if x.dtype.is_floating_point else 0, dtype=x.dtype))
        if v.op in ("argmax", "argmin"):
            if len(dims) > 1:
                kept = [d for d in range(x.dim()) if d not in dims]
                flat = x.permute((*kept, *dims)).reshape(*(x.shape[d] for d in kept), -1)
                found = getattr(torch, v.op)(flat, dim=-1)
                for d in sorted(dims):
                    found = found.unsqueeze(d)
                return found
            return getattr(torch, v.op)(x, dim=dims[0], keepdim=True)
        function = getattr(torch, REDUCTIONS[v.op].torch)
        if v.op in ("prod", "any", "all"):
            for d in dims:
                x = function(x, dim=d, keepdim=True)
            return x
        return function(x, dim=dims, keepdim=True)


def _round_odd(x: Any) -> Any:
    """f64 to f32 by rounding to odd: rounding that once more, to 16 bits, is rounding once."""
    import torch

    single = x.to(torch.float32)
    back = single.double()
    bits = single.view(torch.int32)
    odd = (bits - (back.abs() > x.abs()).to(torch.int32)) | 1
    return torch.where((back != x) & torch.isfinite(x) & torch.isfinite(single), odd, bits).view(torch.float32)
