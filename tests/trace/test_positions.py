"""Random compositions of torch's operators on tensors of several ranks: what is traced is what torch computes, by position.

Both dims have the same size here, so that torch raises nothing where dims are paired wrongly: it would compute something else.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

import kgen
from kgen.runtime.evaluate import Evaluator
from kgen.trace import trace
from tests.trace.written import module

PARAMS = {
    "x": ('"T[M, N]"', 2), "y": ('"T[M, N]"', 2), "w": ('"T[N]"', 1), "v": ('"T[M]"', 1), "q": ('"f32[M, N]"', 2), "r": ('"f32[N]"', 1),
    "a": ('"T[]"', 0), "i": ('"i32[M, N]"', 2), "k": ('"i64[M]"', 1), "l": ('"T[..., N]"', 3), "h": ('"T[..., N]"', 3), "o": ('"T[...]"', 2),
}  # fmt: skip
UNARY = ("torch.tanh({})", "{}.float()", "({}).square()", "{} * 0.5", "-{}", "{}.sigmoid()", "{}[:, None]", "{}[..., None]",
         "{}.unsqueeze(-1)", "{}.unsqueeze(0)", "{}.transpose(0, 1)", "{}.transpose(-1, -2)", "{}.squeeze(-1)", "{}.squeeze(0)",
         "torch.softmax({}.float(), -1)", "F.softmax({}.float(), dim=0)", "{}[None]", "F.layer_norm({}, w.shape)", "({} > 0.1)",
         "{}.mean()", "{}.sum(-1)", "{}.sum(0)", "{}.amax(-1, keepdim=True)", "{}.mean(0, keepdim=True)", "{}.mean((-2, -1))", "{}.argmax(-1)",
         "{}.sum(-2)", "{}.any(-1)", "{}.max(-1, keepdim=True)[0]", "torch.zeros_like({})", "{}.sum(-1, keepdim=True)",
         "torch.roll({}, 1, -1)", "({}).flip(0)", "({}).t()", "({}).permute(1, 0)", "({}).movedim(0, -1)", "torch.stack(({0}, {0}), 0).sum(0)",
         "torch.stack(({0}, -{0}), -1)[..., 0]", "torch.cat(({0}, -{0}), -1).chunk(2, -1)[1]", "({})[..., 1:].sum(-1)", "({})[:, :-1].mean()",
         "F.pad({}, (1, -1))", "F.pad({}, (1, 1))[..., 2:]", "({})[0]", "({})[..., -1]", "({}).flatten(0, -1).sum(-1)",
         "torch.cat((({0})[1:], ({0})[:1]), 0)", "({}).expand_as(x)", "({}).reshape(x.shape)")  # fmt: skip
BINARY = ("{} + {}", "{} * {}", "{} - {}", "torch.maximum({}, {})", "torch.where({} > 0, {}, 1.5)", "{}.lerp({}, 0.25)", "{}.masked_fill({} > 0, 0)",
          "{}.mul({})", "F.mse_loss({}, {})", "F.mse_loss({}, {}, reduction='none')", "{}.type_as({})", "torch.addcmul({}, {}, w)")  # fmt: skip


def expression(rnd: random.Random, names: list[str], depth: int) -> str:
    if depth == 0 or rnd.random() < 0.15:
        return rnd.choice(names)
    if rnd.random() < 0.55:
        return rnd.choice(UNARY).format(f"({expression(rnd, names, depth - 1)})")
    parts = (f"({expression(rnd, names, depth - 1)})" for _ in range(2))
    return rnd.choice(BINARY).format(*parts)


def texts(seed: int, count: int) -> list[tuple[str, list[str]]]:
    """Functions of up to three tensors, at most one kind of leading dims among them."""
    import re

    rnd, found = random.Random(seed), []
    while len(found) < count:
        names = (
            rnd.sample(["x", "y", "w", "v", "q", "r", "a", "i", "k"], 3) if rnd.random() < 0.7 else [*rnd.sample(["l", "h", "o"], 2), "w"]
        )
        text = expression(rnd, names, rnd.choice((2, 3, 3, 4)))
        used = [n for n in PARAMS if re.search(rf"\b{n}\b", re.sub(r"\bw\.shape", "", text))]
        if used and ("w.shape" not in text or "w" in used):
            found.append((text, used))
    return found


def tensors(used: list[str], dtype: torch.dtype, size: int) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    made = {}
    for n in used:
        kind, rank = PARAMS[n]
        shape = [size] * rank
        if "i" in kind[:2]:
            made[n] = torch.randint(-3, 4, shape, generator=g, dtype=torch.int32 if "i32" in kind else torch.int64)
        else:
            made[n] = torch.randn(shape, generator=g, dtype=torch.float64).to(torch.float32 if "f32" in kind else dtype)
    return made


def compare(folder: Path, seed: int, count: int) -> int:
    """How many functions were traced; each of them agrees with torch."""
    cases = texts(seed, count)
    lines = [
        f"def f{k}({', '.join(f'{n}: {PARAMS[n][0]}' for n in used)}):\n    return torch.clone({text})\n"
        for k, (text, used) in enumerate(cases)
    ]
    made = module(folder, "\n".join(lines))
    traced = 0
    for k, (text, used) in enumerate(cases):
        function = getattr(made, f"f{k}")
        try:
            kernel = trace(function)
        except kgen.KgenError:
            continue
        traced += 1
        for dtype in (torch.float64, torch.bfloat16):
            given = tensors(used, dtype, 3)
            try:
                expected = function(**given)
            except RuntimeError:  # torch does not promote for every function
                continue
            (got,) = Evaluator(kernel, given, "eager").run()
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype), text
            if dtype == torch.float64:
                # The eager reading differs from the function in the order of a few operations alone, some of them in f32.
                near = torch.allclose(got.double(), expected.double(), rtol=2e-5, atol=2e-5, equal_nan=True)
                assert near if got.dtype.is_floating_point else torch.equal(got, expected), text
    return traced


@pytest.mark.filterwarnings("ignore:Using a target size")  # torch's own word on losses that broadcast
@pytest.mark.parametrize("seed", range(3))
def test_what_is_traced_is_what_torch_computes(tmp_path: Path, seed: int) -> None:
    assert compare(tmp_path, seed, 150) >= 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_many_more(tmp_path: Path) -> None:
    for seed in range(100, 140):
        compare(tmp_path, seed, 150)
