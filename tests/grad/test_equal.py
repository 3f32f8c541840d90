"""Gradients of the greatest of computed values: the values that the backward computes anew are those among which the forward chose."""

from __future__ import annotations

import shutil

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
PARAMS = ", ".join(f"x{k}: T[..., N]" for k in range(len(FUNCTIONS)))


def kernels() -> tuple[kgen.Kernel, kgen.Kernel]:
    """The greatest of each function of an operand of its own, and the values themselves."""
    most = ", ".join(f"y{k}: T[...]" for k in range(len(FUNCTIONS)))
    values = ", ".join(f"v{k}: T32[..., N]" for k in range(len(FUNCTIONS)))
    greatest = "\n".join(f"y{k} = max[N]({f}(x{k}))" for k, f in enumerate(FUNCTIONS))
    given = "\n".join(f"v{k} = {f}(x{k})" for k, f in enumerate(FUNCTIONS))
    return (
        kgen.loads(f"greatest({PARAMS}) -> ({most})\n\n{BODY}{greatest}\n"),
        kgen.loads(f"values({PARAMS}) -> ({values})\n\n{BODY}{given}\n"),
    )


GREATEST, VALUES = kernels()


@pytest.mark.parametrize(("dtype", "target"), CASES)
def test_the_gradient_of_a_greatest_value_goes_to_that_value(dtype: torch.dtype, target: str) -> None:
    """In rows with tails and without; equal values (tanh is 1 for many) share it, as `amax` in torch has it."""
    device = "cpu" if target in ("torch", "cpp") else "cuda"
    for n in (100, 37, 64, 1000) if device == "cpu" else (100, 1000):
        torch.manual_seed(n)
        xs = [(torch.randn(300, n) * 2).to(dtype).to(device).requires_grad_() for _ in FUNCTIONS]
        got = torch.autograd.grad([y.sum() for y in GREATEST(*xs, target=target)], xs)
        values = VALUES(*(x.detach() for x in xs), target=target)
        for (name, function), x, v, dx in zip(FUNCTIONS.items(), xs, values, got):
            v = v.requires_grad_()
            (share,) = torch.autograd.grad(v.amax(-1).sum(), v)
            wide = x.detach().double().requires_grad_()
            (slope,) = torch.autograd.grad(function(wide).sum(), wide)
            eps = torch.finfo(dtype).eps
            torch.testing.assert_close(dx.double(), share.double() * slope, rtol=2 * eps, atol=1e-6, msg=f"{name}, rows of {n}")
