"""Runs emitted host functions of specs with places under Triton's interpreter against torch; started by test_triton_places.py."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F

from tests.headers_where import CASES, results
from tests.triton import quick_interpreter  # noqa: F401

warnings.simplefilter("ignore")
torch.manual_seed(0)
folder = Path(sys.argv[1])


def load(name: str):
    """The function that the test emitted under this name."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}_triton.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def close(got, want) -> None:
    assert got.shape == want.shape and torch.allclose(got, want, atol=1e-12), (got, want)


def refused(call, words: str) -> None:
    try:
        call()
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError("accepted")


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


rope, turned = load("rope"), load("rope_interleaved")
for x in (random(2, 3, 16), random(3, 16, 2).permute(2, 0, 1)):
    cos, sin = random(3, 8), random(3, 8)
    a, b = x.chunk(2, -1)
    want = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    close(rope(x, cos, sin), want)
    out = torch.empty_like(want)
    close(rope(x, cos, sin, out=out), want)
    close(out, want)
    a, b = x[..., ::2], x[..., 1::2]
    close(turned(x, cos, sin), torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2))
refused(lambda: rope(random(2, 3, 15), random(3, 8), random(3, 8)), "x has 15 along 2*D: that is 16")
x, w = random(2, 3, 9), random(3, 4)
close(load("conv")(x, w), F.conv1d(F.pad(x, (3, 0)), w[:, None], groups=3))
y, z = random(2, 3, 9), random(2, 4, 9)
close(load("woven")(x, y), torch.stack([x, y, x * y], -1).flatten(-2))
four, eight = torch.arange(4)[:, None, None], torch.arange(8)[:, None]
close(load("stacked")(z), z[:, :, None] * eight + z[:, :1, None] * four)
want = torch.cat([x[..., 1:], x[..., :1]], -1) - x.flip(-1)
close(load("around")(x), want)
image = random(2, 4, 5)
stencil = torch.tensor([[0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=torch.float64)
close(load("laplacian")(image), F.conv2d(image[:, None], stencil[None, None], padding=1)[:, 0])
x = random(3, 2, 5)
before, led = x.clone(), F.pad(x[:, :1, 1:] * 2, (0, 1)).expand(3, 2, 5)
close(load("led")(x), led - (led * before).amax(1, keepdim=True))
close(x, led)
out = torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
load("alone")(3, out=out)
assert [y.tolist() for y in out] == [[0, 3, 6, 9], [3, 4, 5, 6]], out
for name, (_, meaning, calls) in CASES.items():
    for args in calls if name != "top" else ():
        want, kernel = results(meaning(*args)), load(name)
        for got, exact in zip(results(kernel(*args)), want, strict=True):
            close(got, exact)
        out = tuple(torch.zeros_like(w) for w in want)
        for got, exact in zip(results(kernel(*args, out=out if len(out) > 1 else out[0])), want, strict=True):
            close(got, exact)
refused(lambda: load("ragged")(random(3, 2), torch.tensor([], dtype=torch.int64)), "0 is no B + 1")
refused(lambda: load("windows")(random(3), 9, 3), "L = (N - width) // step + 1 is -1")
print("held")
