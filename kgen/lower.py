"""Checked kernel to program: dtype variables bound, every conversion explicit, host numbers told from values.

A failure past this line is kgen's bug, not the writer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kgen.check import Kernel, Value
from kgen.errors import Diagnostic, KgenError
from kgen.ir import Builder, Let, Op, Program, Store, Tensor, leaf, live, ref, verify
from kgen.ops import BY_CHANCE, REDUCTIONS, ROWS, SCANS, code_name, value_name
from kgen.searches import SEARCHES, compared_type, weight_type
from kgen.types import (
    DTYPES,
    Binding,
    DType,
    Float,
    Number,
    ValueType,
    boolean,
    f64,
    i64,
    is_wide,
    promote,
    resolve,
    u16,
    u32,
    union,
    variable_of,
)
from kgen.values import cast_to


def lower(kernel: Kernel, binding: Binding) -> Program:
    """The program of a kernel for one choice of its dtype variables.

    A value is computed in f64 where an f64 meets in it, in f32 for any other float, in its own width for integers.
    Programs of different bindings have the same lets in the same order (a conversion that is none for this binding
    stays, as a cast to the same dtype), so that one text can serve them all.
    """
    return _Lower(kernel, binding).program()


def compute_dtype(t: ValueType, binding: Binding) -> DType | Number:
    """The dtype in which a value of type `t` is computed."""
    return t.compute(binding) if isinstance(t, Float) else t


def generic(t: ValueType) -> str:
    """The name of the dtype in which `t` is computed before the variables are bound (`T32` is computed as T is), "" where it
    depends on none."""
    if not isinstance(t, Float) or "f64" in t.of:
        return ""
    return "+".join(sorted({variable_of(name) for name in t.of} - {""}))


class _Lower:
    def __init__(self, kernel: Kernel, binding: Binding):
        self.kernel, self.binding = kernel, binding
        self.build = Builder()
        self.done: dict[int, Let] = {}

    def program(self) -> Program:
        """The kernel's values as lets in their order, conversions between them, then a store for each result."""
        kernel = self.kernel
        labels: dict[int, str] = {}
        for name, number, _ in kernel.equations:
            if kernel.values[number].op != "param":
                labels.setdefault(number, name)
        for i, v in enumerate(kernel.values):
            self.done[i] = self.value(v, labels.get(i, ""))
        tensors = tuple(Tensor(p.name, resolve(p.dtype, self.binding).stored, p.dims) for p in kernel.params if p.dims is not None)
        stores = []
        for r in kernel.results:
            dtype = resolve(r.dtype, self.binding)
            dtype = dtype if dtype.coded else dtype.stored
            value, kind = self.done[r.value], kernel.values[r.value].type
            if value.is_number or not dtype.is_float:
                value = self.convert(value, Float(frozenset({r.dtype})) if dtype.is_float else dtype)
            elif not isinstance(kind, Float):
                value = self.convert(value, Float(frozenset({r.dtype})))
            if dtype.coded:
                value = self.code(value, dtype, (), [])
            stores.append(Store(r.name, value.name, dtype.stored, r.dims, r.state))
        lets = live(self.build.lets, stores)
        binding = tuple(self.binding.items())
        return verify(Program(kernel.name, kernel.signature(False), binding, tensors, lets, tuple(stores), kernel.file.source))

    def value(self, v: Value, label: str) -> Let:
        """The let of one value of the kernel, its operands converted to the dtype it is computed in; `label` is the writer's name
        for it."""
        args = [self.done[a] for a in v.args]
        dtype = compute_dtype(v.type, self.binding)
        if v.op == "param":
            is_number = isinstance(v.type, Number)
            declared = next(p.dtype for p in self.kernel.params if p.name == v.attr)
            if not is_number and (stored := resolve(declared, self.binding)).coded:
                code = self.build.add(leaf("load", str(v.attr)), stored.stored, v.dims, v.span)
                return self.decoded(code, stored, v)
            return self.build.add(leaf("arg" if is_number else "load", str(v.attr)), dtype, v.dims, v.span, "", generic(v.type))
        if v.op in ("lit", "const", "size", "index"):
            return self.build.add(leaf(v.op, str(v.attr)), dtype, v.dims, v.span, label)
        if v.op == "cast":
            return self.cast(args, v, label)
        if v.op == "place":
            return self.place(v, args, label)
        if v.op == "pick" or v.op in REDUCTIONS and v.attr:
            if dtype is i64 and v.op in ("sum", "prod"):
                args = [self.convert(args[0], i64)]
            if v.op in SEARCHES:
                values, (weight, amount) = [self.kernel.values[a] for a in v.args], SEARCHES[v.op]
                args[weight] = self.convert(args[weight], weight_type(v.op, values))
                args[amount] = self.convert(args[amount], compared_type(v.op, values))
            if v.op in ("any", "all"):
                args = [self.convert(args[0], boolean)]
            expr = Op(v.op, *v.attr, *(ref(a.name) for a in args))
        elif v.op in SCANS:
            expr = Op(v.op, *v.attr, *(ref(self.convert(a, v.type).name) for a in args))
        else:
            expr = Op(v.op, *(ref(a.name) for a in self.operands(v, args)))
        return self.build.add(expr, dtype, v.dims, v.span, label, generic(v.type))

    def place(self, v: Value, args: list[Let], label: str) -> Let:
        """A value at places along some of its dims, one dim after the other: first those whose places run along none of the others."""
        made, left = args[0], dict(zip(v.attr, (self.convert(a, i64) for a in args[1:]), strict=True))
        while left:
            dim = next((d for d, e in left.items() if not any(d != o and o in e.dims for o in left)), "")
            if not dim:
                raise KgenError(Diagnostic("these places run along one another's dims, which is not supported", v.span,
                                           help="name one of the two dims otherwise"), self.kernel.file.source)  # fmt: skip
            at = left.pop(dim)
            dims = union(tuple(d for d in made.dims if d != dim), at.dims)
            last = "" if left else label
            made = self.build.add(Op("place", dim, ref(made.name), ref(at.name)), args[0].dtype, dims, v.span, last, args[0].generic)
        return made

    def operands(self, v: Value, args: list[Let]) -> list[Let]:
        """The operands of an operator in the dtype that they share."""
        if isinstance(v.type, Number):
            return args
        rule = ROWS[v.op].rule
        if rule == "code":
            return [args[0], *(self.convert(b, u32) for b in args[1:])]
        common: ValueType = v.type
        if rule in ("compare", "test"):
            types = [self.kernel.values[a] for a in v.args]
            common = promote([(t.type, bool(t.dims)) for t in types])
        elif rule == "words":
            common = i64
        return [self.convert(a, boolean if rule == "where" and k == 0 else common) for k, a in enumerate(args)]

    def code(self, x: Let, dtype: DType, how: tuple[str, ...], bits: list[Let], label: str = "") -> Let:
        """The code of a value in a float of few bits, in one of its modes; `label` is the writer's name for what it stands for."""
        if x.is_number:
            x = self.build.add(Op("cast", ref(x.name)), f64, x.dims, x.span)
        operands = [x, *(self.convert(b, u32) for b in bits)]
        stored = dtype.stored if dtype.coded else u16
        dims = union(*(o.dims for o in operands))
        return self.build.add(Op(code_name(dtype, how), *(ref(o.name) for o in operands)), stored, dims, x.span, label)

    def decoded(self, code: Let, dtype: DType, v: Value) -> Let:
        """The value of a code, as it is computed with."""
        return self.build.add(Op(value_name(dtype), ref(code.name)), dtype.computed, code.dims, v.span)

    def cast(self, args: list[Let], v: Value, label: str) -> Let:
        """A cast by name rounds to that dtype; a float then goes on in the dtype it is computed in."""
        x, (name, how) = args[0], cast_to(v)
        dtype = resolve(name, self.binding)
        if dtype.coded or how and dtype.narrow and name in DTYPES:
            return self.decoded(self.code(x, dtype, how, args[1:], label), dtype, v)
        variable = f"={name}" if name not in DTYPES else ""  # the storage dtype itself, not what it is computed in
        if not dtype.is_float:
            return self.convert(x, dtype, label)
        if (name == "f64" or name == "f32" or is_wide(name)) and not (how and x.dims != v.dims):
            return self.convert(x, v.type, label)
        expr = Op("cast", ref(x.name))
        if how:  # the dtype's own function knows whether it rounds by chance
            expr = Op(BY_CHANCE, *(ref(o.name) for o in (self.convert(x, v.type), *(self.convert(b, u32) for b in args[1:]))))
        made = self.build.add(expr, dtype, v.dims if how else x.dims, v.span, "", variable)
        return self.build.add(Op("cast", ref(made.name)), compute_dtype(v.type, self.binding), made.dims, v.span, label, generic(v.type))

    def convert(self, x: Let, t: ValueType, label: str = "") -> Let:
        dtype = compute_dtype(t, self.binding)
        assert isinstance(dtype, DType)
        if x.dtype is dtype and x.generic == generic(t):
            return x
        return self.build.add(Op("cast", ref(x.name)), dtype, x.dims, x.span, label, generic(t))


def sized(program: Program, sizes: Mapping[str, int]) -> Program:
    """A program in which the sizes of known dims are literals."""
    return replace(program, lets=tuple(
        replace(let, expr=leaf("lit", str(sizes[let.expr.attrs[0]]))) if let.expr.name == "size" and let.expr.attrs[0] in sizes else let
        for let in program.lets
    ))  # fmt: skip


__all__ = ["DTYPES", "compute_dtype", "lower", "sized"]
