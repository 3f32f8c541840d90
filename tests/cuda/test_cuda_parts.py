"""Parts that lie in turns along the innermost dim: CUDA's maps read and write their vectors as one; the emitted kernels, run on the CPU."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from kgen import check, syntax
from kgen.backends import backend
from kgen.parts import parted
from kgen.runtime import arguments, maps, nvrtc
from kgen.runtime.parts import view
from tests.cuda.emulated import Emulated, kernels
from tests.cuda.test_cuda_source import on_the_cpu
from tests.cuda.test_cuda_taps import passed

TURNED = """turned(x: T[..., S, D, 2], w: T[S, D]) -> y: T[..., S, D, 2]

y[2 = 0] = x[2 = 0] * w - x[2 = 1]
y[2 = 1] = x[2 = 1] * w + x[2 = 0]
"""
WEIGHED = """weighed(x: T[..., S, D, 2], w: T[S, D, 2]) -> (y: T[..., S, D, 2], s: T[S, D, 2])

y[2 = 0] = x[2 = 0] * w[2 = 0] - x[2 = 1]
y[2 = 1] = x[2 = 1] * w[2 = 1] + x[2 = 0]
s[2 = 0] = sum[...](x[2 = 0])
s[2 = 1] = sum[...](x[2 = 1] * w[2 = 0])
"""
SUMMED = """summed(x: T[..., S, D, 2], w: T[S, D]) -> (y: T[..., S, D, 2], s: T[S, D])

y[2 = 0] = x[2 = 0] * w - x[2 = 1]
y[2 = 1] = x[2 = 1] * w + x[2 = 0]
s        = sum[...](x[2 = 0] * w + 3 * x[2 = 1])
"""
FOUR = """four(x: T[M, N, 4]) -> (x': T[M, N, 4], z: T[M, N])

z       = x[4 = 0] + x[4 = 3]
x'[4 = 0] = x[4 = 3]
x'[4 = 1] = x[4 = 1] * 2
x'[4 = 2] = x[4 = 2] + x[4 = 1]
x'[4 = 3] = x[4 = 0]
"""


class OverParts(Emulated):
    """A kernel's launcher over its parts; a call is of whole tensors."""

    def __init__(self, text: str, folder: Path, *calls: tuple[Any, ...]):
        self.whole = check.check(syntax.parse(text, "emulated.k"))
        self.parted = parted(self.whole)
        assert self.parted is not None
        nvrtc.Launcher.__init__(self, self.parted.kernel)
        self.run.arch = "sm_80"
        self.run.function = self.function  # type: ignore[method-assign]
        self.launched = []
        self.bound = [self.bind(args) for args in calls]
        self.expressions = list(dict.fromkeys(e for _, call in self.bound for e in self.asked(call)))
        self.library = kernels(folder / f"{self.kernel.name}.cpp", self.run.source, self.expressions)

    def asked(self, call: Any) -> list[str]:
        """The kernels that a call launches: where its tensors lie counts."""
        found = list[str]()
        own, self.run.function = self.run.function, lambda expression, arch: found.append(expression) or (lambda *_: None)  # type: ignore
        self.launch(call, 0, 0)
        self.run.function = own  # type: ignore[method-assign]
        call.ready.clear()
        return found

    def bind(self, args: tuple[Any, ...]) -> tuple[dict[str, Any], Any]:
        """The whole results of a call, and the call over parts."""
        whole = arguments.bind(self.whole, args, {}, None, False)
        assert self.parted is not None
        params = {p.name: p.dims for p in self.whole.params}
        results = {r.name: r for r in self.whole.results}
        given = tuple(view(whole.given[p.of], params[p.of] or (), p) for p in self.parted.params)
        new = [p for p in self.parted.results if results[p.of].state is None]
        outs = tuple(view(whole.results[p.of], results[p.of].dims, p) for p in new)
        return whole.results, arguments.bind(self.kernel, given, {}, outs or None)

    def results(self, k: int) -> dict[str, Any]:
        self.launch(self.bound[k][1], 0, 0)
        return self.bound[k][0]


def turned(x: torch.Tensor, w: torch.Tensor) -> dict[str, torch.Tensor]:
    a, b = x.unbind(-1)
    return {"y": torch.stack([a * w - b, b * w + a], -1)}


def summed(x: torch.Tensor, w: torch.Tensor) -> dict[str, torch.Tensor]:
    terms = x[..., 0] * w + 3 * x[..., 1]
    return turned(x, w) | {"s": terms.flatten(0, -3).sum(0) if terms.dim() > 2 else terms}


def weighed(x: torch.Tensor, w: torch.Tensor) -> dict[str, torch.Tensor]:
    (a, b), (p, q) = x.unbind(-1), w.unbind(-1)
    return {"y": torch.stack([a * p - b, b * q + a], -1), "s": torch.stack([a.sum(0), (b * p).sum(0)], -1)}


def four(x: torch.Tensor) -> dict[str, torch.Tensor]:
    a, b, c, d = x.unbind(-1)
    return {"x'": torch.stack([d, b * 2, c + b, a], -1), "z": a + d}


def tensor(shape: tuple[int, ...], dtype: torch.dtype, chance: random.Random, way: str) -> torch.Tensor:
    """A tensor of small integers in one of several layouts, its first elements aligned or not."""
    many, off = torch.Size(shape).numel(), chance.choice((0, 0, 8, 4, 2, 1))
    if way == "planes":  # each part apart
        t = torch.empty(off + many, dtype=dtype)[off:].view(shape[-1], *shape[:-1]).movedim(0, -1)
    elif way == "apart":
        t = torch.empty(off + 2 * many, dtype=dtype)[off:].view(*shape[:-1], 2 * shape[-1])[..., : shape[-1]]
    elif way == "inner":  # neighbours along the last dim but one are two apart, and parts are not neighbours
        t = torch.empty(off + 2 * many + 9 * shape[-1], dtype=dtype)[off:]
        t = t.as_strided(shape, [*(2 * torch.Size(shape[d + 1 : -1]).numel() for d in range(len(shape) - 1)), 2 * torch.Size(shape[:-1]).numel() + 9])
    else:
        t = torch.empty(off + many, dtype=dtype)[off:].view(shape)
    return t.copy_(torch.randint(-8, 8, shape))


def hold(text: str, meaning: Any, calls: list[tuple[Any, ...]], folder: Path) -> list[str]:
    """Hold what calls give to what the text means; returns the kernels that were launched."""
    want = [meaning(*(t.double() for t in args)) for args in calls]
    launcher = OverParts(text, folder, *calls)
    for k in range(len(calls)):
        for name, found in launcher.results(k).items():
            assert torch.equal(found, want[k][name].to(found.dtype)), (name, [(t.shape, t.stride(), t.data_ptr() % 16) for t in calls[k]])
    return launcher.expressions


def in_turns(expression: str) -> bool:
    """Whether some operands of a walk over rows lie in turns."""
    return int(expression.split("Walk<")[1].split(", ")[7].removesuffix("ull")) >> 48 > 0


def cases(text: str, dtype: torch.dtype, count: int, seed: int) -> list[tuple[Any, ...]]:
    chance, calls = random.Random(seed), list[tuple[Any, ...]]()
    for k in range(count):
        m, n = chance.choice((1, 3, 4, 8)), chance.choice((1, 2, 5, 8, 16, 24, 40, 65))
        way = chance.choice(("dense", "dense", "apart", "planes", "inner")) if k else "dense"
        if text is FOUR:
            calls.append((tensor((m, n, 4), dtype, chance, way),))
        else:
            lead = chance.choice(((), (2,), (4,)))
            calls.append((tensor((*lead, m, n, 2), dtype, chance, way), tensor((m, n), dtype, chance, "dense")))
    return calls


@pytest.mark.parametrize("text", [TURNED, pytest.param(FOUR, marks=pytest.mark.slow)], ids=["turned", "four"])
def test_parts_in_turns(text: str, tmp_path: Path) -> None:
    meaning = turned if text is TURNED else four
    made = hold(text, meaning, cases(text, torch.bfloat16, 8, 3), tmp_path)
    assert any("true" in e for e in made) and any("false" in e for e in made)


def test_parts_of_which_one_is_read_are_not_in_turns(tmp_path: Path) -> None:
    """Both are written: of what lies in turns all is read, or nothing (a random program found it)."""
    text = "second(x: T[N, D, 2]) -> x': T[N, D, 2]\n\nx'[2 = 0] = x[2 = 1] * 2\nx'[2 = 1] = x[2 = 1]\n"
    x = tensor((8, 16, 2), torch.bfloat16, random.Random(1), "dense")
    hold(text, lambda x: {"x'": torch.stack([x[..., 1] * 2, x[..., 1]], -1)}, [(x,)], tmp_path)


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (4, 5, 6, 7))])
def test_rows_in_turns_whose_columns_are_summed(seed: int, tmp_path: Path) -> None:
    """What is sent for of two parts at once, for rows that follow one another, is each part's own; so is what is written.  Vectors have 16
    bytes, or those of 16-bit elements 8 beside sums in f32."""
    text = SUMMED.replace("s: T[", "s: f32[") if seed > 5 else SUMMED
    calls = cases(SUMMED, torch.bfloat16 if seed % 2 else torch.float32, 6, seed)
    calls.append((tensor((40, 3, 200, 2), calls[0][0].dtype, random.Random(0), "dense"), tensor((3, 200), calls[0][0].dtype, random.Random(0), "dense")))
    made = hold(text, summed, calls, tmp_path)
    assert {in_turns(e) for e in made} == {False, True}


def test_what_all_rows_share_in_turns_is_read_part_by_part(tmp_path: Path) -> None:
    """And sums of columns are written so."""
    x, w = (torch.randint(-8, 8, shape).bfloat16() for shape in ((40, 3, 64, 2), (3, 64, 2)))
    assert any(in_turns(e) for e in hold(WEIGHED, weighed, [(x, w)], tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("text", [TURNED, FOUR], ids=["turned", "four"])
def test_parts_of_any_layout(text: str, dtype: torch.dtype, seed: int, tmp_path: Path) -> None:
    hold(text, turned if text is TURNED else four, cases(text, dtype, 30, 10 + seed), tmp_path)


def test_several_rows_of_a_thread(tmp_path: Path) -> None:
    x, w = torch.randint(-8, 8, (4, 64, 2048, 2)).bfloat16(), torch.randint(-8, 8, (64, 2048)).bfloat16()
    launcher = OverParts(TURNED, tmp_path, (x, w))
    launch = launcher.bound[0][1]
    assert launcher.expressions == ["turned_kernel<bf16, 2, 4, unsigned, 0, 1, true>"]
    many = maps.in_turns(((0, 1), (3, 4)), (64, 16384), ((32768, 2),) * 2 + ((0, 1),) + ((32768, 2),) * 2, (2,) * 5, (0, 2, 0, 0, 2), 4)
    assert many is not None and many.turns and many.variant == maps.Variant(2, 4, False, 0, 4) and launch is not None


def test_parts_that_stand_still_along_a_row_are_not_in_turns() -> None:
    """x expanded along the innermost dim: two neighbours for all of a row's elements."""
    still, moving = ((16, 2, 0),) * 2, ((16, 2, 0), (16, 2, 1))
    assert maps.in_turns(((0, 1),), (15, 8, 8), (*still, (64, 8, 1)), (2, 2, 2), (0, 2, 0), 0) is None
    assert maps.in_turns(((0, 1),), (15, 8, 8), (*moving, (64, 8, 1)), (2, 2, 2), (0, 2, 0), 0) is None


@pytest.mark.slow
def test_a_written_files_host_part_moves_parts_in_turns(tmp_path: Path) -> None:
    made = parted(check.check(syntax.parse(TURNED, "parts.k")))
    assert made is not None
    entry = on_the_cpu(backend("cuda").render(made.kernel), tmp_path).turned_f32
    for x, w in cases(TURNED, torch.float32, 40, 5):
        y = tensor(tuple(x.shape), torch.float32, random.Random(x.numel()), "dense")
        order = [p.of for p in made.params if p.of == "x"]
        over = [x[..., 0], x[..., 1], w.expand(x.shape[:-1]), y[..., 0], y[..., 1]]
        operands = [a for t in over for a in passed(t)]
        assert len(order) == 2 and entry(x.dim() - 1, (ctypes.c_longlong * 4)(*x.shape[:-1]), *operands, None) == 0
        assert torch.equal(y, turned(x, w)["y"]), (x.shape, x.stride())
