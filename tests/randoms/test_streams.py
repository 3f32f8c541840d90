"""Random words are those of the paper, whatever the target, and wherever an element lies."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import kgen
from kgen import check, grad, syntax
from kgen.backends import backend
from kgen.ops import OPS
from kgen.passes import Map, Reduce
from kgen.pipeline import scheduled
from kgen.runtime.kernel import Kernel
from kgen.trace import to_spec
from tests import warm
from tests.conftest import ROOT
from tests.cuda.emulated import Emulated
from tests.randoms.layouts import SHAPE, layouts
from tests.randoms.philox import KNOWN, halves, stream, words

pytestmark = pytest.mark.usefixtures("built_quickly_by_default")

SEED, OFFSET = 0x299F31D0A4093822, -5
#: Words of a map, by numbers of the call and by tensors.
BITS = """bits(x: T[..., M, N], seed: int, offset: int, s: i64[], o: i64[]) -> (y: T[..., M, N], r: i64[..., M, N], t: i64[..., N, M])

y = x
r = random[..., M, N](seed, offset)
t = random[..., N, M](s, o + 1)
"""
#: Words of rows, in their reading and behind it, of positions and of one number for each row.
ROWS = """lines(x: T[..., M, N], seed: int, o: i64[]) -> (r: i64[..., M, N], top: i64[..., M], all: i64[...])

r   = random[..., M, N](seed, o) if max[N](x) > -inf else 0
top = max[N](random[..., M, N](seed, o) if x == x else 0)
all = sum[M](random[..., M](seed, o) if max[N](x) > -inf else 0)
"""


#: Both words of each pair of elements, in a map and in a row.
PAIRS = """pairs(x: T[..., N], seed: i64[], o: int) -> (y: T[..., N], r: i64[..., N], t: i64[..., N])

y = x
r = philox(seed, o, index[..., N] | 1) - philox(seed, o, index[..., N] & -2)
t = philox(seed, 7, index[..., N] | 2) - philox(-3, o, index[..., N] & -4) if max[N](x) > -inf else 0
"""
#: Words turned round in a result, beside neighbours, where rows have as many elements as vectors ask for.
TURNED = """turned(x: T[N, M]) -> (r: i64[M, N], y: T[N, M])

r = random[N, M](7, 9)
y = x[M = index[M] - 1 else 0]
"""
#: What several readings read of words, by one stream and by two.
AGAIN = """anew(x: T[..., N], seed: i64[], o: int) -> (y: T[..., N], r: i64[..., N], g: T[..., N])

z = x + normal[..., N](seed, o)
y = z - max[N](z)
r = random[..., N](seed, o + 1) if min[N](z) < inf else 0
g = softmax[N](x + gumbel[..., N](seed, o))
"""


def meaning(name: str, shape: tuple[int, ...]) -> list[torch.Tensor]:
    """What the kernels above give for SEED and OFFSET, but for y."""
    *lead, m, n = shape
    if name == "bits":
        return [stream(shape, SEED, OFFSET), stream((*lead, n, m), SEED, OFFSET + 1)]
    r = stream(shape, SEED, OFFSET)
    return [r, r.amax(-1), stream((*lead, m), SEED, OFFSET).sum(-1)]


def given(name: str, x: torch.Tensor) -> tuple[Any, ...]:
    s, o = torch.tensor(SEED), torch.tensor(OFFSET)
    return (x, SEED, OFFSET, s, o) if name == "bits" else (x, SEED, o)


def test_known_answers() -> None:
    for counter, key, wanted in KNOWN:
        c, k = ([int(w, 16) for w in text.split()] for text in (counter, key))
        assert " ".join(f"{int(w):08x}" for w in words(c, k)) == wanted
        if c[3] < 2**30:  # else no element has this counter
            seed, offset, at = ((high << 32) + low for low, high in ((k[0], k[1]), (c[0], c[1]), (c[2], c[3])))
            for i, word in enumerate(wanted.split()):
                assert OPS["philox"].host(seed, offset, 4 * at + i) == int(word, 16)


def test_numbers_and_tensors_agree_with_the_paper() -> None:
    chance = random.Random(0)
    edges = [0, 1, -1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, -(2**63)]
    draws = [[chance.choice((chance.choice(edges), chance.getrandbits(64) - 2**63)) for _ in range(3)] for _ in range(200)]
    seeds, offsets, places = (torch.tensor(v) for v in zip(*draws, strict=True))
    found = OPS["philox"].reference(torch)(seeds, offsets, places)
    for (seed, offset, i), word in zip(draws, found.tolist(), strict=True):
        at = i % 2**64 >> 2
        wanted = int(words([*halves(offset), *halves(at)], halves(seed))[i & 3])
        assert OPS["philox"].host(seed, offset, i) == word == wanted


def test_a_map_counts_in_all_its_dims_at_once() -> None:
    for text, kind in ((BITS, Map), (ROWS, Reduce)):
        kernel = check.check(syntax.parse(text, "random.k"))
        mine = backend("cuda")
        passes = scheduled(kernel, kernel.bindings()[0], mine.rides, mine.merges, mine.taps).passes
        assert {kind} <= {type(p) for p in passes}
        assert kind is Reduce or [p.indices for p in passes] == [("..., M, N", "..., N, M")]


@pytest.mark.parametrize("name", ["bits", "lines"])
def test_streams_of_any_layout_in_cpp(name: str) -> None:
    kernel = Kernel(check.check(syntax.parse({"bits": BITS, "lines": ROWS}[name], "random.k")))
    for layout, x in layouts():
        found = kernel(*given(name, x), target="cpp")
        for y, wanted in zip(found[name == "bits" :], meaning(name, SHAPE), strict=True):
            assert torch.equal(y, wanted), (name, layout)
    for shape in ((), (4,), (2, 0), (7,)):
        x = torch.randn(*shape, 3, 5)
        found = kernel(*given(name, x), target="cpp")
        for y, wanted in zip(found[name == "bits" :], meaning(name, tuple(x.shape)), strict=True):
            assert torch.equal(y, wanted), (name, shape)


def test_neighbours_share_words_in_cuda(tmp_path: Path) -> None:
    """A thread draws its vector's words, four of a counter, also where an element has two of them; where a seed is computed, and is one
    for all, it keeps those of the last counter."""
    texts = {
        "flat": "flat(x: T[..., N], s: i64[], o: int) -> (y: T[..., N], r: i64[..., N])\n\ny = x\nr = random[..., N](s, o)\n",
        "pairs": "pairs(x: T[..., N], s: i64[], o: int) -> (y: T[..., N], r: i64[..., N])\n\n"
                 "y = x\nr = philox(s, o, index[..., N] | 1) - philox(s, o, index[..., N] & -2)\n",
        "along": "along(x: T[..., N], s: i64[], o: int) -> (y: T[..., N], r: i64[..., N])\n\n"
                 "y = x - max[N](x)\nr = random[..., N](s, o)\n",
        "computed": "computed(x: T[..., N], s: i64[], o: int) -> (y: T[..., N], r: i64[..., N])\n\ny = x\nr = random[..., N](s + 0, o)\n",
    }  # fmt: skip
    assert "Philox& philox" not in backend("cuda").render(check.check(syntax.parse(BITS, "two.k")))
    for name, text in texts.items():
        drawn = "Philox philox;" if name == "computed" else "= draw<LANES, SPLAT, "
        assert drawn in backend("cuda").render(check.check(syntax.parse(text, "one.k")))
        shapes = ((5, 16), (3, 70), (1, 1), (2, 3, 40))
        calls = [(torch.randn(shape).to(dtype), torch.tensor(SEED), 3) for shape in shapes for dtype in (torch.float32, torch.bfloat16)]
        run = Emulated(text, tmp_path, *calls)
        for args in calls:
            wanted = stream(args[0].shape, SEED, 3)
            if name == "pairs":
                flat = stream((wanted.numel() + wanted.numel() % 2,), SEED, 3).view(-1, 2)
                wanted = (flat[:, 1] - flat[:, 0]).repeat_interleave(2)[: wanted.numel()].view(wanted.shape)
            assert torch.equal(run(*args)["r"], wanted), (name, args[0].shape)


def compiled(text: str) -> Kernel:
    return Kernel(check.check(syntax.parse(text, "random.k")))


def test_words_of_several_readings_in_cuda(tmp_path: Path) -> None:
    """Made once of rows that stay on the chip, drawn anew of others: of rows of whole vectors and of any, of one element, of long ones."""
    source = backend("cuda").render(check.check(syntax.parse(AGAIN, "anew.k")))
    assert "z_row.done = true" in source and "drawn<Walk, -2, 0>" in source
    shapes = ((3, 2, 40), (5, 24), (3, 70), (2, 13), (4, 1), (1, 5000), (1, 1280))
    calls = [(torch.randn(s).to(d), torch.tensor(SEED), 3) for s in shapes for d in (torch.float64, torch.bfloat16)]
    calls += [(torch.randn(6, 48)[:, 4:36], torch.tensor(SEED), 3), (torch.randn(32, 6).T, torch.tensor(SEED), 3)]
    run, exact = Emulated(AGAIN, tmp_path, *calls), compiled(AGAIN)
    for args in calls:
        found = run(*args)
        assert torch.equal(found["r"], stream(args[0].shape, SEED, 4)), args[0].shape
        near = 2.0**-7 if args[0].dtype == torch.bfloat16 else 1e-5  # normal numbers are f32
        for name, wanted in zip(found, exact(*args, target="torch"), strict=True):
            torch.testing.assert_close(found[name], wanted, rtol=near, atol=near)


@pytest.mark.parametrize("name", ["bits", "lines"])
def test_streams_of_any_layout_in_cuda(name: str, tmp_path: Path) -> None:
    calls = [given(name, x) for _, x in layouts()]
    run = Emulated({"bits": BITS, "lines": ROWS}[name], tmp_path, *calls)
    for args, (layout, _) in zip(calls, layouts(), strict=True):
        found = list(run(*args).values())
        for y, wanted in zip(found[name == "bits" :], meaning(name, SHAPE), strict=True):
            assert torch.equal(y, wanted), (name, layout)


def test_a_backward_in_cuda_has_the_mask_of_the_formula(tmp_path: Path) -> None:
    """Columns and rows in one pass, which both ask for the mask and for the sum of which it is a part: both made once of rows that stay on
    the chip.  Of whole vectors and of any."""
    made = grad.backward(kgen.load("dropout_add_rmsnorm").kernel, save=False).kernel
    source = backend("cuda").render(made)
    assert all(f"{name}_row.done = true" in source for name in ("t3", "h"))

    def call(rows: int, n: int, dtype: torch.dtype) -> tuple[float | torch.Tensor | None, ...]:
        shapes = {("...", "N"): (rows, n), ("N",): (n,)}
        return tuple(
            p.default and float(p.default) if not p.is_tensor else torch.tensor(5) if not p.dims else torch.randn(shapes[p.dims]).to(dtype)
            for p in made.params
        )

    calls = [call(6, 40, torch.float64), call(5, 37, torch.float64), call(3, 1288, torch.float64)]
    run = Emulated(to_spec(made), tmp_path, *calls)
    for args in calls:
        for y, wanted in zip(run(*args).values(), Kernel(made)(*args, target="torch"), strict=True):
            torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)



def test_streams_of_any_layout_in_triton(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    for text in (BITS, ROWS, PAIRS, TURNED):
        for file, made in backend("triton").written(check.check(syntax.parse(text, "random.k"))).items():
            (tmp_path / file).write_text(made)
    env = {**os.environ, "TRITON_INTERPRET": "1", "TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    script = ROOT / "tests" / "randoms" / "interpreted.py"
    done = warm.run(script, tmp_path, env=env)
    assert done.returncode == 0 and "held" in done.stdout, done.stderr[-3000:]


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_leading_dims_alone_are_numbered(shape: tuple[int, ...]) -> None:
    kernel = Kernel(check.check(syntax.parse("f(x: T[...], seed: int) -> y: i64[...]\n\ny = random[...](seed, 0)\n", "random.k")))
    for target in ("cpp", "torch"):
        assert torch.equal(kernel(torch.zeros(shape), 9, target=target), stream(shape, 9, 0))
