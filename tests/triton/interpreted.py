"""Runs the emitted host functions under Triton's interpreter against torch in f64; started by test_triton_rows.py."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path

import torch

from tests.triton import quick_interpreter  # noqa: F401

warnings.simplefilter("ignore")
torch.manual_seed(0)
folder = Path(sys.argv[1])


def load(name: str):
    """The module that the test emitted under this name."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def close(got, want) -> None:
    tol = {torch.float64: 1e-14, torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}.get(got.dtype, 0)
    want = want.expand(got.shape)
    assert got.shape == want.shape
    assert torch.allclose(got.double(), want.double(), rtol=tol, atol=tol, equal_nan=True), (got, want)


def refused(call, *words) -> None:
    try:
        call()
    except (ValueError, TypeError) as error:
        assert all(w in str(error) for w in words), error
    else:
        raise AssertionError("accepted")


def views(dtype):
    """Tensors of every kind of layout in f32; which one it is counts nothing in another dtype, of which three have to do."""
    b = torch.randn(3, 5, 6, 8, dtype=torch.float64).to(dtype)
    yield from (torch.randn(2049, dtype=torch.float64).to(dtype), torch.tensor(1.5, dtype=dtype), b[:, ::2, 1:, 3:])
    if dtype != torch.float32:
        return
    yield torch.empty(0, 3, dtype=dtype)
    yield from (b, b.permute(0, 2, 3, 1), b.transpose(0, 3), b[:, :, :, 0], b[0:1].expand(3, 5, 6, 8))
    yield from (b.to(memory_format=torch.channels_last), torch.randn(9, 32, dtype=torch.float64).to(dtype)[:, :16])
    yield torch.randn(4, 3, 4, 3, 4, 3, dtype=torch.float64).to(dtype)[::2, :2, ::2, :2, ::2, :2]


affine, scaled = load("affine").affine, load("scaled").scaled
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
    for x in views(dtype):
        close(scaled(x), (x.double() * 0.1 + 2).to(dtype))
        out = torch.empty_strided(x.shape, tuple(3 * s for s in torch.empty(x.shape).stride()), dtype=dtype)
        assert scaled(x, 0.25, out=out) is out
        close(out, (x.double() * 0.25 + 2).to(dtype))
        if x.dim():
            for b in (
                torch.randn(x.shape[-1], dtype=torch.float64).to(dtype),
                torch.randn(2 * x.shape[-1], dtype=torch.float64).to(dtype)[::2],
            ):
                close(affine(x, b), (x.double() * 2 + b.double()).to(dtype))
    x = torch.randn(4, 8, dtype=torch.float64).to(dtype)
    kept = x.clone()
    assert scaled(x, out=x) is x
    close(x, (kept.double() * 0.1 + 2).to(dtype))
assert scaled(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)).is_contiguous(memory_format=torch.channels_last)

x = torch.randn(8, 8)
refused(lambda: scaled(x, out=torch.empty(1, 8).expand(8, 8)), "y")
refused(lambda: scaled(x[:, :7], out=x[:, 1:]), "y overlaps x")
refused(lambda: scaled(x.int()), "x is torch.int32")
refused(lambda: scaled(3.0), "x is no tensor")
refused(lambda: affine(x, torch.randn(1)), "dim N is 8 in x and 1 in b")
refused(lambda: affine(x, torch.randn(8).double()), "b is torch.float64")
refused(lambda: affine(x, torch.randn(2, 8)), "b has shape")
refused(lambda: affine(x, torch.randn(8), out=torch.empty(8)), "out for y")

for module in map(load, ("affine", "middle")):  # in tiles
    module.WIDTHS = ((64, 2), (32, 1))
    own = getattr(module, module.__name__)
    for rows, columns in ((4, 16), (9, 24), (3, 16)):
        x, step = torch.randn(rows, 2 * columns), 1 if module.__name__ == "affine" else 0
        w = torch.randn(2 * (columns if step else rows))
        for a, b in ((x[:, :columns].contiguous(), w[::2].contiguous()), (x[:, :columns], w[::2]), (x[:, ::2], w[::2])):
            close(own(a, b), a * 2 + b if step else a * b[:, None])

adam = load("adamish").adamish
for x in views(torch.float32):
    p = x.clone() if 0 not in x.stride() else x.contiguous()
    g, m = torch.randn(p.shape), torch.randn(p.shape).double()
    p0, m0 = p.double(), m.clone()
    assert adam(p, g, m, 3, 1e-2) is None
    m1 = 0.9 * m0 + (1 - 0.9) * g.double()
    torch.testing.assert_close(m, m1, rtol=1e-7, atol=1e-7)  # b1 is rounded to f32 beside g
    close(p, p0 - 1e-2 * m1 / (1 - 0.9**3))
refused(lambda: adam(torch.randn(1, 3), torch.randn(2, 3), torch.randn(1, 3).double(), 1, 0.1), "p")

middle = load("middle").middle
x, w = torch.randn(2, 3, 4, 5), torch.randn(4)
close(middle(x, w), x * w[:, None])
turned = load("turned").turned
x = torch.randn(70, 33)
close(turned(x), x.T + 1)
close(turned(x[::2].T.contiguous().T), x[::2].T + 1)
square = torch.randn(8, 8)
refused(lambda: turned(square, out=square), "overlaps")

passes = load("passes").passes
p, x = torch.randn(7), torch.randn(3, 7)
p0 = p.clone()
y, n = passes(p, x)
close(p, 2 * p0)
close(y, x * p0)
assert torch.equal(n, torch.arange(7).expand(3, 7) * 2 + 7)
y, n = passes(torch.randn(7), torch.randn(2, 2, 2, 2, 2, 2, 7)[:, ::2, :, ::2, :, ::2])
assert torch.equal(n, (torch.arange(7) * 2 + 7).expand(n.shape))
position = load("position").position
x = torch.randn(2, 3, 2, 3, 2, 3, 4)[:, ::2, :, ::2, :, ::2]
close(position(x.permute(3, 0, 1, 2, 4, 5, 6)), x.permute(3, 0, 1, 2, 4, 5, 6) + torch.arange(4) + 100 * torch.arange(2)[:, None])

bools = load("bools").bools
a, b = torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False])
c, d = bools(a, b)
assert torch.equal(c, a & ~b) and torch.equal(d, a <= b) and c.dtype == torch.bool
into = load("into").into
x = torch.tensor([1e30, -1e30, float("nan"), 3.7, -3.7, 127.5, -128.5, 200.0], dtype=torch.float64)
i, u, h = into(x)
assert i.tolist() == [127, -128, 0, 3, -3, 127, -128, 127] and u.tolist() == [255, 0, 0, 3, 0, 127, 0, 200]
close(h[3:], x[3:].bfloat16())  # the interpreter truncates to bf16: single rounding is for a GPU to show
assert load("forget").forget(a := torch.zeros(5)) is None and a.tolist() == [2.5] * 5
nasty = load("nasty")
close(nasty.print(torch.ones(4), torch.ones(4), 2.0, 3.0, torch.ones(4)), torch.full((4,), 8.0))

wide = load("wide").wide
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
    computed = torch.float64 if dtype == torch.float64 else torch.float32
    x, s = torch.randn(3, 9, dtype=torch.float64).to(dtype), torch.randn(9, dtype=computed)
    was = s.clone()
    y, h = wide(s, x)
    assert (y.dtype, h.dtype) == (computed, dtype)
    close(y, x.double() * was.double())
    close(h, was.to(dtype).double() + x.double() / 3)
    close(s, was.double() * 2)
    other = torch.float32 if dtype == torch.float64 else torch.float64
    refused(lambda x=x, s=s, other=other: wide(s.to(other), x), str(other))
    out = y.to(other), h
    refused(lambda x=x, s=s, out=out: wide(s, x, out=out), str(other))

print("ok")
