"""What a row is made of, alone and among others: Triton's layout of a tile, which is the order in which it adds, says so without a GPU."""

import re

import pytest
import torch

import kgen
from kgen.runtime import toolchain
from kgen.runtime.arguments import bind
from tests.compiled import ARCH, launchers

SUMS = """f(w: U[N, C], x: T[..., N, C]) -> y: T[..., N, C]

y = x * w / sum[N](x * w)
"""
SCANS = """f(w: U[N, C], x: T[..., N, C]) -> (y: T[..., N, C], z: f32[..., C, Ends]) where Ends = (N + 1) // 2

y = fma(recur[N](tanh(x), x), w, 0.1)
z = asin(tanh(y))[N = N - 1 - index[Ends] else 0]
"""


def layouts(kernel, given):
    """The layouts of the tiles that a call's sums and scans go over, by kernel."""
    call = bind(kernel.kernel, (), given, None, kernel._alone)
    made = toolchain.triton_kernels(launchers(kernel).triton, call, ARCH)
    found = {}
    for name, compiled in made.items():
        text = compiled.asm["ttgir"]
        named = dict(re.findall(r"^(#\w+) = (#ttg\.\w+<\{.*\}>)", text, re.M))
        found[name] = [named[n] for n in re.findall(r"^\s+\}\) : \(tensor<[^>]*?, (#\w+)>", text, re.M)]
    return found


@pytest.mark.parametrize(
    "source, size, dtypes",
    [(SUMS, 16, "float32 float32"), (SUMS, 100, "bfloat16 bfloat16"), (SCANS, 16, "bfloat16 float64"), (SCANS, 16, "float32 float32")],
)
def test_leading_dims_do_not_change_how_a_tile_lies(source, size, dtypes):
    """A parameter that stands still along the leading dims came first: rows were walked in its order, these dims innermost, and no
    longer side by side."""
    pytest.importorskip("triton")
    kernel = kgen.loads(source)
    own, other = (getattr(torch, d) for d in dtypes.split())
    x, w = torch.ones(3, 64, size, dtype=own), torch.ones(64, size, dtype=other)
    among, alone = (layouts(kernel, {"w": w, "x": t}) for t in (x, x[0].clone()))
    assert among == alone and any(among.values())
