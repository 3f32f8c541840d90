"""Static files, as `kgen compile --static` writes them, called from a folder of their own and held to the derived bound."""

from __future__ import annotations

import ctypes
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import torch
from click.testing import CliRunner

from kgen import check, syntax
from kgen.cli import main
from kgen.cli.group import load_spec, with_backward
from kgen.specialise import bound
from kgen.testing import checks
from kgen.testing.bounds import Analysis
from kgen.testing.checks import Report
from kgen.types import DTYPES, ELLIPSIS

#: Leading dims of the tensors.
LEAD = (3, 2)
#: Both directions, with an element itself and without, of several operands; scans of rows that lie side by side, and of another pass's rows.
SCANS = {
    "forth": "forth(a: T[..., N], b: T[..., N], c: T[N]) -> (h: T[..., N], s: T[..., N])\n\n"
             "h = recur[N, exclusive](a / 8, b) + index[N] * b\ns = cummax[N](b * c) * 2\n",
    "back": "back(x: T[..., N], k: i8[N]) -> (y: T[..., N], z: i64[N])\n\n"
            "y = logcumsumexp[N, reversed](x) * 2\nz = cumsum[N, reversed, exclusive](k)\n",
    "upright": "upright(x: T[M, N]) -> y: T[M, N]\n\ny = cumsum[M](x) - x\n",
    "shares": "shares(x: T[..., N]) -> y: T[..., N]\n\ny = cumsum[N](softmax[N](x))\n",
}  # fmt: skip


def kernels(spec: str, backward: bool) -> list[Any]:
    """The kernels that are written for a spec: a bundled one or one of SCANS by name, or a text."""
    spec = SCANS.get(spec, spec)
    kernel = check.check(syntax.parse(spec, "given.k")) if "\n" in spec else load_spec(spec)
    return with_backward(kernel) if backward else [kernel]


def compiled(spec: str, target: str, folder: Path, dtype: str, sizes: dict[str, int], backward: bool = False) -> dict[str, Path]:
    """The files of a spec's kernels, by kernel."""
    source = spec = SCANS.get(spec, spec)
    if "\n" in spec:
        source = str(folder / "given.k")
        folder.mkdir(exist_ok=True)
        Path(source).write_text(spec)
    static = ",".join(f"{d}={n}" for d, n in sizes.items())
    asked = ["compile", source, "--target", target, *(["--dtype", dtype] if dtype else []), "-o", str(folder), "--static", *([static] if static else [])]
    done = CliRunner().invoke(main, [*asked, *(["--backward"] if backward else [])])
    assert done.exit_code == 0, done.output
    every = kernels(spec, backward)
    suffix = {"cpp": ".cpp", "cuda": ".cu", "triton": "_triton.py"}[target]
    return {k.name: folder / every[0].name / f"{k.name}{suffix}" for k in every}


def arguments(kernel: Any, sizes: dict[str, int], lead: tuple[int, ...] = LEAD, device: str = "cpu") -> dict[str, Any]:
    """A call's arguments: normal data, indices that are mostly inside, numbers that keep roots and powers in their domain."""
    torch.manual_seed(1)
    made: dict[str, Any] = {}
    for p in kernel.params:
        if not p.is_tensor:
            made[p.name] = 3 if p.dtype == "int" else 0.25
            continue
        shape = [n for d in p.dims for n in (lead if d == ELLIPSIS else (sizes[d],))]
        dtype = DTYPES[p.dtype]
        if dtype.is_float:
            x = torch.randn(shape)
            saved = p.dtype == "f32" and not any(r.state == p.name for r in kernel.results)
            made[p.name] = (x.abs() + 0.5 if saved or p.name == "v" else x).to(getattr(torch, dtype.torch))
        else:
            made[p.name] = torch.randint(0, 3, shape).to(getattr(torch, dtype.torch))
        made[p.name] = made[p.name].to(device)
    return made


def results(kernel: Any, given: dict[str, Any], sizes: dict[str, int], lead: tuple[int, ...] = LEAD) -> dict[str, torch.Tensor]:
    """A tensor for each result, new ones filled with what no kernel gives."""
    device = next(x.device for x in given.values() if isinstance(x, torch.Tensor))
    made = {}
    for r in kernel.results:
        shape = [n for d in r.dims for n in (lead if d == ELLIPSIS else (sizes[d],))]
        made[r.name] = given[r.state] if r.state else torch.full(shape, 77, dtype=getattr(torch, DTYPES[r.dtype].torch), device=device)
    return made


def holds(kernel: Any, given: dict[str, Any], got: dict[str, torch.Tensor], target: str) -> None:
    """Each result lies within its bound of the exact value; `given` are the arguments as they were before the call."""
    for r, want in zip(kernel.results, Analysis(kernel, given, target).results(), strict=True):
        said = checks.compare(got[r.name].cpu(), want, None, Report(kernel.name, target))
        assert not said, f"{kernel.name}, {r.name}: {said}"
        assert torch.isfinite(torch.as_tensor(want.bound)).double().mean() > 0.9, f"{kernel.name}, {r.name}: no bound to hold it to"


def concrete(kernel: Any, dtype: str) -> Any:
    return bound(kernel, dict.fromkeys(kernel.variables, dtype)) if kernel.variables else kernel


def called_as_c(function: Any, kernel: Any, given: dict[str, Any], made: dict[str, torch.Tensor], count: int | None, *more: Any) -> Any:
    """Call a function of C as the head of a static file says."""
    pointers = [ctypes.c_void_p(given[p.name].data_ptr()) for p in kernel.params if p.is_tensor]
    pointers += [ctypes.c_void_p(made[r.name].data_ptr()) for r in kernel.results if not r.state]
    numbers = [(ctypes.c_int64 if p.dtype == "int" else ctypes.c_double)(given[p.name]) for p in kernel.params if not p.is_tensor]
    counts = [ctypes.c_int64(count)] if count is not None else []
    return function(*pointers, *numbers, *counts, *more)


def count_of(kernel: Any, lead: tuple[int, ...]) -> int | None:
    """How many elements the leading dims have; None where no tensor has any."""
    has = any(ELLIPSIS in (t.dims or ()) for t in (*kernel.params, *kernel.results))
    return int(torch.Size(lead).numel()) if has else None


def built(path: Path, compiler: str, quickly: bool = False) -> ctypes.CDLL:
    """The library that a file's head says how to build, by that line (`quickly`: but for -O0), in a folder without anything else."""
    line = re.search(rf"^//     ({re.escape(compiler)} .*)$", path.read_text(), re.M)
    assert line
    command = ["-O0" if quickly and word == "-O3" else word for word in shlex.split(line[1])]
    subprocess.run(command, cwd=path.parent, check=True, capture_output=True, env={"PATH": "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin"})
    return ctypes.CDLL(str(path.with_suffix(".so")))


__all__ = ["LEAD", "SCANS", "arguments", "built", "called_as_c", "compiled", "concrete", "count_of", "holds", "kernels", "results"]
