"""Runs emitted reductions under Triton's interpreter against torch in f64; started by test_triton_rows.py."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import warnings
from pathlib import Path

import torch

from tests.triton import quick_interpreter  # noqa: F401

warnings.simplefilter("ignore")
torch.manual_seed(0)
torch.cuda.device_of = lambda _: contextlib.nullcontext()  # type: ignore[assignment,misc]
folder = Path(sys.argv[1])
FORMS = ("row", "loop", "split")
#: Of loops and splits, which walk alike but for who adds up, each module takes one.
TAKEN = {"inplace": FORMS[:2], "places": FORMS[::2], "products": FORMS[:2], "two": FORMS[::2], "ae": FORMS, "aa": FORMS[::2], "cd": FORMS[:2]}


def load(name: str):
    """The module that the test emitted under this name."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def form(module, chosen: str) -> None:
    """Make a module take one form for every row: small tiles, so that a few elements make several segments."""
    if chosen == "row":
        module.tiles = lambda length, *_: (4, max(1, 1 << (length - 1).bit_length()), 0, 4)
    else:
        module.tiles = lambda length, *_: (4, 4, 8, 4)
        module.FEW = 0 if chosen == "loop" else 1 << 40


def close(got, want, tol=1e-12) -> None:
    assert got.shape == want.shape and torch.allclose(got.double(), want.double(), rtol=tol, atol=tol, equal_nan=True), (got, want)

for chosen in TAKEN["inplace"]:
    module = load("inplace")
    form(module, chosen)
    for base in (torch.randn(2, 3, 21, dtype=torch.float64), torch.randn(21, 3, 2, dtype=torch.float64).permute(2, 1, 0)):
        x, p = base.clone(memory_format=torch.preserve_format), torch.randn(2, 3, dtype=torch.float64)
        want = base * p[..., None] / base.abs().amax(-1, keepdim=True), p + (base * p[..., None]).sum(-1)
        assert module.inplace(x, p) is None
        close(x, want[0])
        close(p, want[1])

for chosen in TAKEN["places"]:
    module = load("places")
    form(module, chosen)
    base = torch.randint(0, 5, (2, 3, 11)).double()
    views = base, base.transpose(0, 2), base.where(base != 3, float("nan"))
    for x in views[chosen != "row" :]:  # an element takes the interpreter a hundredth of a second
        i, j, k = module.places(x)
        assert torch.equal(i, x.transpose(0, 1).flatten(1).argmax(-1)) and torch.equal(j, x.argmin(1)) and k.item() == x.argmax().item()

for chosen in TAKEN["products"]:
    module = load("products")
    form(module, chosen)
    x, w = torch.randn(37, 13, dtype=torch.float64), torch.randn(13)
    p, q, r = module.products(x, w)
    close(p, (x * w).prod(-1), 1e-9)
    close(q, x.amin(0))
    close(r, (w * x).sum(0), 1e-6)

for chosen in TAKEN["two"]:
    module = load("two")
    form(module, chosen)
    x = torch.rand(9, 19, dtype=torch.float64)
    close(module.two(x), x / x.sum(0) / x.sum(1, keepdim=True))
    assert chosen != "row" or module.two(x[:0]).shape == (0, 19)

for chosen in TAKEN["ae"]:
    module = load("ae")
    form(module, chosen)
    x, y = torch.randn(3, 7, dtype=torch.float64), torch.randn(3, 7, dtype=torch.float64)
    out = torch.full((4, 7), 5.0, dtype=torch.float64)  # one row of 21 elements, and what lies behind it
    d, m = module.ae(x, y, out=(out[:3], torch.empty((), dtype=torch.float32)))
    close(d, (x - y) ** 2)
    close(m, ((x - y) ** 2).mean().float(), 1e-6)
    assert (out[3] == 5).all()

for chosen in TAKEN["aa"]:
    module = load("aa")
    form(module, chosen)
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    for view in (x, x[:, :1].expand(2, 3, 5), x.permute(2, 0, 1)):
        assert module.aa(view).item() == view.argmin().item()
    scattered = torch.randn(3, 2, 2, 2, 2, 2, 4, dtype=torch.float64)[:, :, ::2].transpose(0, 3).transpose(2, 5)
    assert module.aa(scattered).item() == scattered.argmin().item()

for chosen in TAKEN["cd"]:
    module = load("cd")
    form(module, chosen)
    for dtype in (torch.float64, torch.bfloat16):
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        x, d = (torch.randn(3, 19, dtype=torch.float64).to(dtype) for _ in range(2))
        r, w = torch.randn(3, dtype=wide), torch.randn(19, dtype=wide)
        was, (a, b, c) = w.clone().double(), (t.double() for t in (x, d, r))
        dx, dw, n = module.cd(x, r, d, w)
        assert (dx.dtype, dw.dtype, n.dtype) == (dtype, wide, wide)
        g = b * c[:, None]
        close(dx, g - a * (g * a).mean(-1, keepdim=True), 1e-12 if wide == dtype else 2.0**-7)
        tol = 1e-12 if wide == dtype else 1e-5
        close(dw, (a * g).sum(0), tol)
        close(n, (a * b).sum(-1) / 3, tol)
        close(w, was * 0.5 + a.amax(0), tol)
        try:
            module.cd(x, r.to(torch.float16), d, w)
        except TypeError as error:
            assert "torch.float16" in str(error), error
        else:
            raise AssertionError("accepted")

module = load("bare")
for few in (module.FEW, 0):  # split, and by a loop
    module.FEW = few
    for length in (5, 64, 100, 1500):
        x = torch.randn(length, dtype=torch.float64)
        k, s = module.bare(x)
        assert k.item() == 3 * (length - 1)
        close(s, x.sum() / 2 + (length - 1) / 2)

w, t = torch.randn(7, 5), torch.tensor([[3, 6], [-1, 7]])
y = load("embed").embed(w, t)
close(y[0], w[[3, 6]])
assert y[1].isnan().all()
print("ok")
