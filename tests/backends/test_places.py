"""A value depends on its operands alone: not on where its element stands, nor on rows, strides, threads or the pass that computes it.

The C++ target, where loops have vector bodies, tails and single elements.  What a pass over elements gives for each operator is what passes
over rows must find anywhere, bit for bit.
"""

from __future__ import annotations

import shutil

import pytest
import torch

import kgen
from kgen.backends.cpp import Cpp
from kgen.ops import OPS, Op
from kgen.testing.operators import spec

pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler is installed")
#: Every operator that gives floats, and of these those that a library serves side by side or one by one (fma has three operands); the others are
#: one piece of code for all elements, and keep g++ from taking those beside them side by side.
FLOAT = [op for op in OPS.values() if op.rule in ("float", "same", "arith", "where")]
LIBRARY = [op for op in FLOAT if op.name in (*Cpp.vector_library, "sigmoid", "fma")]
LENGTHS = (1, 2, 7, 16, 37, 63, 64, 65, 100, 129, 577, 1023)


def line(op: Op) -> str:
    """An operator's value in kgen's language, of `a`, `b` and `c`."""
    return spec(op.arity, [op]).partition(" = ")[2]


class Places:
    """For some operators in a dtype: `values(a, b, c)`, what a map gives for each, and `strange(a, b, c)`, in which of the places of a pass
    over rows something else is found: as bits, one an operator, the most that a row has (`elements`) or for a row's own value (`rows`)."""

    def __init__(self, dtype: str, ops: list[Op]):
        self.ops, self.dtype = ops, getattr(torch, {"f32": "float32", "f64": "float64"}[dtype])
        names = [f"r_{op.name}" for op in ops]
        abc = ", ".join(f"{n}: {dtype}[...]" for n in "abc")
        lines = [f"{name} = {line(op)}" for name, op in zip(names, ops)]
        head = f"values({abc}) -> ({', '.join(f'{n}: {dtype}[...]' for n in names)})\n"
        self.values = kgen.loads("\n".join([head, *lines]), "values.k")
        # h(a) is op(a), of an element or of a row; a NaN is as good as another
        helpers = [f"h{k}(a, b, c) = {line(op)}" for k, op in enumerate(ops)]
        other = "other(x, r, bit) = bit if x != r and not (isnan(x) and isnan(r)) else 0"

        def strange(operands: str, given: str) -> str:
            return " + ".join(f"other(h{k}({operands}), {given}{k}, {2**k})" for k in range(len(ops)))

        params = [f"{n}: {dtype}[..., N]" for n in "abc"] + [f"r{k}: {dtype}[..., N]" for k in range(len(ops))]
        rows = [f"{n}: {dtype}[...]" for n in "uvw"] + [f"p{k}: {dtype}[...]" for k in range(len(ops))]
        self.elements = kgen.loads("\n".join([
            f"elements({', '.join(params)}) -> bad: i64[...]\n", *helpers, other,
            f"bad = max[N]({strange('a, b, c', 'r')})",
        ]), "elements.k")  # fmt: skip
        self.rows = kgen.loads("\n".join([
            f"rows(a: {dtype}[..., N], {', '.join(rows)}) -> bad: i64[...]\n", *helpers, other,
            "low = min[N](a)", f"bad = {strange('u + low, v, w', 'p')}",
        ]), "rows.k")  # fmt: skip

    def found(self, *bits: torch.Tensor) -> list[str]:
        """The names of the operators whose bit is set somewhere."""
        every = 0
        for x in torch.cat([b.reshape(-1) for b in bits]).unique().tolist():
            every |= x
        return [op.name for k, op in enumerate(self.ops) if every >> k & 1]


def operands(dtype: torch.dtype, n: int = 12 * 1023) -> list[torch.Tensor]:
    """Three operands, within the domain of every operator somewhere, with special values among them."""
    torch.manual_seed(0)
    made = [torch.randn(n, dtype=torch.float64) * torch.tensor([0.3, 1.0, 1.0, 8.0]).repeat(n // 4 + 1)[:n] for _ in range(3)]
    for x in made:
        x[torch.randint(n, (200,))] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-40, 1e30, 3e38]).double().repeat(25)
    return [x.to(dtype) for x in made]


@pytest.fixture(scope="module", params=[
    "library f32", pytest.param("library f64", marks=pytest.mark.slow), pytest.param("every f32", marks=pytest.mark.slow),
])  # fmt: skip
def places(request: pytest.FixtureRequest) -> Places:
    which, dtype = request.param.split()
    return Places(dtype, LIBRARY if which == "library" else FLOAT)


def same(x: torch.Tensor, y: torch.Tensor) -> bool:
    return bool(((x == y) | (x.isnan() & y.isnan())).all())


def test_rows_of_any_length_and_stride_have_the_values_of_a_map(places: Places) -> None:
    abc = operands(places.dtype)
    n = len(abc[0])
    values = places.values(*abc)
    for length in LENGTHS:
        count = n // length * length
        given = [x[:count].view(-1, length) for x in (*abc, *values)]
        assert not places.found(*places.elements(*given)), length
        across = [x.t().contiguous().t() for x in given]  # rows whose elements lie far apart
        assert not places.found(*places.elements(*across)), length
        apart = [torch.stack([x, x], -1)[..., 0] for x in given]
        assert not places.found(*places.elements(*apart)), length


def test_a_row_has_the_value_that_an_element_has(places: Places) -> None:
    abc = operands(places.dtype)
    values = places.values(*abc)
    for length in (1, 3, 100):
        zeros = torch.zeros(len(abc[0]), length, dtype=places.dtype)
        held = places.values(abc[0] + 0, *abc[1:])  # -0.0 + 0 is 0.0
        assert not places.found(places.rows(zeros, *abc, *held)), length
    assert len(values) == len(places.ops)


def test_a_map_has_one_value_wherever_its_element_lies(places: Places) -> None:
    abc = operands(places.dtype, 40_961)  # more than threads are used for
    values = places.values(*abc)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = places.values(*abc)
    finally:
        torch.set_num_threads(threads)
    shifted = places.values(*(x[5:777] for x in abc))
    strided = places.values(*(x[1::3] for x in abc))
    for op, y, one, some, far in zip(places.ops, values, alone, shifted, strided):
        assert same(y, one) and same(y[5:777], some) and same(y[1::3], far), op.name
    for i in range(0, 30):
        for op, y, one in zip(places.ops, values, places.values(*(x[i] for x in abc))):
            assert same(y[i], one), op.name
