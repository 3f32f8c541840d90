"""Gradients of the greatest and the least of computed values: the values that the backward computes anew are those among which the forward chose."""

from __future__ import annotations

import shutil
from functools import cache
from itertools import product

import pytest
import torch

import kgen

has_compiler = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler is installed")
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
F32, BF16 = torch.float32, torch.bfloat16
CASES = [
    pytest.param(F32, "torch", id="torch-f32"),
    pytest.param(F32, "cpp", id="cpp-f32", marks=has_compiler),
    pytest.param(BF16, "cpp", id="cpp-bf16", marks=[has_compiler, pytest.mark.slow]),
    *(pytest.param(d, t, id=f"{t}-{d}", marks=on_gpu) for t, d in (("triton", F32), ("cuda", BF16))),
    *(pytest.param(d, t, id=f"{t}-{d}", marks=[*on_gpu, pytest.mark.slow]) for t, d in (("triton", BF16), ("cuda", F32))),
]
FUNCTIONS = {"tanh": torch.tanh, "sin": torch.sin, "gelu": torch.nn.functional.gelu, "product": lambda x: x * 1.7 - 0.3}
BODY = "product(x) = x * f32(1.7) - f32(0.3)\n"
EVERY = tuple(FUNCTIONS)
#: In C++ by default: at -O3 a function that g++ may take side by side, one by one or together with another, and the rest at -O0.  That no
#: function's bits follow from the pass around it is what tests/backends/test_places.py holds at -O3.
BUILT, QUICKLY = ("sin",), ("tanh", "gelu", "product")
ORDERS = {"max": "amax", "min": "amin"}


@cache
def kernels(order: str, functions: tuple[str, ...]) -> tuple[kgen.Kernel, kgen.Kernel]:
    """The greatest or the least of each function of an operand of its own, and the values themselves."""
    params = ", ".join(f"x{k}: T[..., N]" for k in range(len(functions)))
    most = ", ".join(f"y{k}: T[...]" for k in range(len(functions)))
    values = ", ".join(f"v{k}: T32[..., N]" for k in range(len(functions)))
    chosen = "\n".join(f"y{k} = {order}[N]({f}(x{k}))" for k, f in enumerate(functions))
    # read by an order too, so that they are the values that it chooses among
    given = "\n".join(f"v{k} = {f}(x{k})\nm{k} = {order}[N](v{k})" for k, f in enumerate(functions))
    taken = most.replace("y", "m")
    return (
        kgen.loads(f"chosen({params}) -> ({most})\n\n{BODY}{chosen}\n"),
        kgen.loads(f"values({params}) -> ({values}, {taken})\n\n{BODY}{given}\n"),
    )


def orders() -> list:
    """Each case with each order, all functions in one kernel; of C++, whose builds take ten seconds each, one order by default, in two kernels."""
    slow = {"cpp": [pytest.mark.slow]}
    made = []
    for order, c in product(ORDERS, CASES):
        made.append(pytest.param(*c.values, order, EVERY, id=f"{c.id}-{order}", marks=[*c.marks, *slow.get(c.values[1], ())]))
    return made + [pytest.param(F32, "cpp", "min", some, id=f"cpp-f32-min-{some[0]}", marks=has_compiler) for some in (BUILT, QUICKLY)]


@pytest.mark.parametrize(("dtype", "target", "order", "functions"), orders())
def test_the_gradient_of_what_an_order_chooses_goes_to_that_value(
    dtype: torch.dtype, target: str, order: str, functions: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    """In rows with tails and without; equal values (tanh is 1 for many) share it, as `amax` in torch has it."""
    if functions == QUICKLY:
        request.getfixturevalue("built_quickly")
    device = "cpu" if target in ("torch", "cpp") else "cuda"
    chosen, given = kernels(order, functions)
    for n in (100, 37, 64, 1000) if device == "cpu" else (100, 1000):
        torch.manual_seed(n)
        xs = [(torch.randn(300, n) * 2).to(dtype).to(device).requires_grad_() for _ in functions]
        got = torch.autograd.grad([y.sum() for y in chosen(*xs, target=target)], xs)
        values = given(*(x.detach() for x in xs), target=target)
        for name, x, v, dx in zip(functions, xs, values, got):
            v = v.requires_grad_()
            (share,) = torch.autograd.grad(getattr(v, ORDERS[order])(-1).sum(), v)
            wide = x.detach().double().requires_grad_()
            (slope,) = torch.autograd.grad(FUNCTIONS[name](wide).sum(), wide)
            eps = torch.finfo(dtype).eps
            torch.testing.assert_close(dx.double(), share.double() * slope, rtol=2 * eps, atol=1e-6, msg=f"{name}, rows of {n}")


@pytest.mark.parametrize("target", ["cpp", "cuda"])
def test_what_an_order_reads_takes_no_factors(target: str) -> None:
    """A function takes factors where nothing else reads what lies between: a backward's does not, so that a forward's must not either."""
    apart = "F(0.5) * error_complement(-x * F(0.7071067811865476))"
    for reduction, takes in (("sum", True), ("min", False)):
        source = kgen.loads(f"f(x: T[..., N]) -> y: T32[...]\n\ny = {reduction}[N](gelu(x))\n").source(target)
        assert ("error_complement(x, -F(0.7071067811865476), F(0.5))" in source, apart in source) == (takes, not takes)


def test_a_cosine_is_the_same_beside_its_sine() -> None:
    """Fuzzing: g++ -O3 joined both where the argument cannot be -0, and where that is another number no element equalled the least."""
    kernel = kgen.loads("""f(y: f32[M, N]) -> (a: f32[M, N], b: f32[M, N])
t = y + 0
a = sin(t) if cos(t) == min[N](cos(t)) else 0
u = abs(y) + 1
b = sin(u) if cos(u) == min[N](cos(u)) else 0
""")
    y = torch.randn(2000, 5, generator=torch.Generator().manual_seed(1)) * 1000
    for found in kernel(y, target="cpp"):
        assert bool(((found != 0).sum(-1) == 1).all())
