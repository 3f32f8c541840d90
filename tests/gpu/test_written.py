"""Sources as `kgen compile` writes them: built by the line in their heads, beside their library and without kgen, and called from C."""

from __future__ import annotations

import ctypes
import math
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import kgen
from kgen import grad
from kgen.testing import checks
from kgen.testing.bounds import Analysis
from kgen.testing.checks import Report

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed"),
]


def built(name: str, folder: Path, backward: bool = False) -> ctypes.CDLL:
    """The library that the written source of a spec, or of its backward, says how to build, for bf16 alone."""
    from click.testing import CliRunner

    from kgen.cli import main

    done = CliRunner().invoke(main, ["compile", name, "--target", "cuda", "--dtype", "bf16", "-o", str(folder), *["--backward"] * backward])
    assert done.exit_code == 0, done.output
    path = folder / name / f"{name}{'_backward' * backward}.cu"
    line = re.search(r"^//     (nvcc .*)$", path.read_text(), re.M)
    assert line
    subprocess.run(line.group(1).split(), cwd=path.parent, check=True)
    return ctypes.CDLL(str(path.with_suffix(".so")))


def integers(values: list[int]) -> ctypes.Array:
    return (ctypes.c_longlong * len(values))(*values)


def tensors(rows: bool) -> list[torch.Tensor]:
    """Fifty of random shapes and strides; `rows` also has long last dims."""
    draw, found = random.Random(5), []
    for _ in range(50):
        sizes = [draw.choice((1, 2, 3, 7, 16)) for _ in range(draw.randint(0, 2))]
        last = draw.choice((1, 8, 33, 1024, 4096, 5000, 16_384, 40_000, 300_000) if rows else (1, 8, 33, 1000, 4096))
        x = torch.randn(*sizes, last + draw.choice((0, 0, 3, 8)), device="cuda").to(torch.bfloat16)[..., :last]
        found.append(x.transpose(-1, 0) if draw.random() < 0.3 and x.dim() > 1 and last < 5000 else x)
    return found


def test_a_map_has_the_bits_of_the_runtimes(tmp_path: Path) -> None:
    library, gelu = built("gelu", tmp_path), kgen.load("gelu")
    for x in tensors(False):
        y = torch.empty_like(x)
        size, step, to = integers([*x.shape]), integers([*x.stride()]), integers([*y.stride()])
        assert library.gelu_bf16(x.dim(), size, ctypes.c_void_p(x.data_ptr()), step, ctypes.c_void_p(y.data_ptr()), to, None) == 0
        torch.cuda.synchronize()
        assert torch.equal(y, gelu(x, target="cuda")), x.shape


def test_a_map_of_what_stands_still_has_the_bits_of_the_runtimes(tmp_path: Path) -> None:
    """Operands that are expanded along any dims, beside one that lacks them; flat tensors that begin anywhere, with odd lengths."""
    library, dyt, draw = built("dyt", tmp_path), kgen.load("dyt"), random.Random(7)

    def some(*sizes: int) -> torch.Tensor:
        """A tensor of these sizes, dense or expanded, which begins anywhere."""
        own = [draw.choice((n, n, n, 1)) for n in sizes]
        begins = draw.choice((0, 0, 1, 4))
        return torch.randn(begins + math.prod(own), device="cuda").to(torch.bfloat16)[begins:].view(own).expand(sizes)

    for _ in range(60):
        lead, n = draw.choice(((), (1,), (3,), (8, 5), (512,))), draw.choice((1, 7, 8, 1000, 1001, 4096))
        x, alpha, w, b = some(*lead, n), some(1)[0], some(n), some(n)
        y, along = torch.empty(x.shape, device="cuda", dtype=x.dtype), [0] * len(lead)
        operands = [(x, [*x.stride()]), (alpha, [*along, 0]), (w, [*along, *w.stride()]), (b, [*along, *b.stride()]), (y, [*y.stride()])]
        called(library, "dyt_bf16", x.dim(), None, [*x.shape], *operands)
        assert torch.equal(y, dyt(x, alpha, w, b, target="cuda")), (x.shape, x.stride(), w.stride(), b.stride())


def called(library: ctypes.CDLL, entry: str, rank: int, outer: int | None, size: list[int], *operands: object) -> None:
    """Call a function of C on tensors, whose strides are broadcast to the dims, and numbers (`ctypes`); maps have no `outer`."""
    given: list[object] = [rank, *([] if outer is None else [outer]), integers(size)]
    for x in operands:
        given += [ctypes.c_void_p(x[0].data_ptr()), integers(x[1])] if isinstance(x, tuple) else [x]
    assert library[entry](*given, None) == 0
    torch.cuda.synchronize()


@pytest.mark.first
@pytest.mark.parametrize("name", ["softmax", pytest.param("layernorm", marks=pytest.mark.slow)])
def test_rows_have_the_bits_of_the_runtimes(name: str, tmp_path: Path) -> None:
    """And stay within the derived bound, those that are not very large."""
    library, kernel = built(name, tmp_path), kgen.load(name)
    for x in tensors(True):
        y, n = torch.empty_like(x), x.shape[-1]
        along = [0] * (x.dim() - 1) + [1]
        weights = [torch.randn(n, device="cuda").to(x) for _ in range(2 * (name == "layernorm"))]
        numbers = [ctypes.c_double(1e-5), ctypes.c_longlong(n)] if weights else []
        operands = [(x, [*x.stride()]), *((w, along) for w in weights), (y, [*y.stride()])]
        called(library, f"{name}_bf16", x.dim(), x.dim() - 1, [*x.shape], *operands, *numbers)
        assert torch.equal(y, kernel(x, *weights, target="cuda")), x.shape
        if x.numel() < 2**21 and name == "softmax":
            (want,) = Analysis(kernel.kernel, {"x": x.cpu()}, "cuda").results()
            said = checks.compare(y.cpu(), want, x.cpu().softmax(-1), Report("softmax", "cuda"))
            assert not said, f"{list(x.shape)} {x.stride()}: {said}"


@pytest.mark.first
def test_rows_and_columns_have_the_bits_of_the_runtimes(tmp_path: Path) -> None:
    """Of rmsnorm's backward: dx and dw come from one reading, in both; also of lengths between powers of two, whose steps are others."""
    library = built("rmsnorm", tmp_path, True)
    kernel = kgen.Kernel(grad.backward(kgen.load("rmsnorm").kernel).kernel)
    between = [torch.randn(300, n, device="cuda").to(torch.bfloat16) for n in (8200, 12_000, 16_376, 24_568)]
    for x in (*tensors(True), *between):
        n, lead = x.shape[-1], x.dim() - 1
        dy, w, r = torch.randn_like(x), torch.randn(n, device="cuda").to(x), torch.rand(x.shape[:-1], device="cuda") + 0.5
        dx, dw = torch.empty_like(x), torch.empty_like(w)
        rows, along = [*r.stride(), 0], [0] * lead + [1]
        operands = [(dy, [*dy.stride()]), (x, [*x.stride()]), (w, along), (r, rows), (dx, [*dx.stride()]), (dw, along)]
        called(library, "rmsnorm_backward_bf16", x.dim(), lead, [*x.shape], *operands, ctypes.c_longlong(n))
        want = kernel(dy, x, w, r, target="cuda")
        assert torch.equal(dx, want[0]) and torch.equal(dw, want[1]), x.shape
