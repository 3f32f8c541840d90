"""Candidates under `allclose`, as KernelBench judges them: one shape of normal random numbers, five trials, one tolerance for a dtype.

Its evaluation (repository ScalingIntelligence/KernelBench, src/kernelbench/eval.py, commit 0d12226) draws new inputs for each of its
trials, all of the task's one shape, dense and of random numbers, calls model and candidate on the same tensors, and takes a result of
the reference's shape for right where `torch.allclose` holds with atol and rtol of 1e-4 (float32) or 1e-2 (the 16-bit floats).  An error
of the candidate is a fault found.  What differs here is to its advantage: all results are compared, not the first alone, each in a process
of its own, in float32 and in a 16-bit float, and what a call writes in place is compared, too.

In: a candidate and a spec.  Out: "" for one that passes, or why it does not.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

TRIALS = 5
TOLERANCE = {"f32": 1e-4, "bf16": 1e-2, "f16": 1e-2}
SEED = 42
#: Sizes of a task: the leading dims, and named dims (others have 64).
LEADING = (32,)
SIZES = {"N": 1024, "V": 1024, "K": 256, "Q": 256, "S": 64, "G": 8, "C": 16, "M": 32, "B": 8, "D": 64}
NUMBERS = {"int": 3, "float": 0.25}


@lru_cache
def kernel_of(spec: str) -> Any:
    from kgen.testing.against import subject

    return subject(spec).kernel


def drawn(kernel: Any, dtype: str, device: str = "cpu") -> dict[str, Any]:
    """A task's inputs: dense, normal; probabilities where the spec takes logarithms of them; places inside of what is picked from."""
    from kgen.runtime.arguments import default
    from kgen.types import DTYPES, ELLIPSIS

    made: dict[str, Any] = {}
    literal = kernel.literals
    picked = max((SIZES.get(d, 64) for p in kernel.params for d in p.dims or () if d == "V"), default=3)
    for p in kernel.params:
        if not p.is_tensor:
            made[p.name] = default(p) if p.default is not None else NUMBERS[p.dtype]
            continue
        shape = [n for d in p.dims for n in (LEADING if d == ELLIPSIS else (literal.get(d) or SIZES.get(d, 64),))]
        own = DTYPES[{"T": dtype, "T32": "f32"}.get(p.dtype, p.dtype)]
        of = getattr(torch, own.torch)
        if not own.is_float:
            made[p.name] = torch.randint(0, picked, shape, device=device).to(of)
            continue
        x = torch.randn(shape, device=device)
        if kernel.name in ("jsd", "kl_div"):
            x = x.log_softmax(-1) if p.name == "q" and kernel.name == "kl_div" else x.softmax(-1)
        made[p.name] = (x.abs() if p.name == "v" else x).to(of)  # a second moment is none below 0
    return made


def _said(candidate: str, spec: str, dtypes: Sequence[str], device: str) -> str:
    """Why a candidate does not pass, in this process."""
    from kgen import check as checker
    from kgen.runtime import joined
    from kgen.runtime.evaluate import Evaluator
    from kgen.verify.candidates import named
    from kgen.verify.loading import load

    kernel = kernel_of(spec)
    plain = checker.plain(kernel)
    interface = {
        "params": [[p.name, p.is_tensor, p.default is not None] for p in kernel.params],
        "results": [[r.name, r.state or ""] for r in kernel.results],
        "spec": kernel.file.source.text,
    }
    torch.set_grad_enabled(False)
    loaded = load(named(candidate).plain(), interface, device)
    for dtype in dtypes:
        for trial in range(TRIALS):
            torch.manual_seed(SEED + trial)
            given = drawn(plain, dtype, device)
            want = Evaluator(plain, {k: x.clone() if isinstance(x, torch.Tensor) else x for k, x in given.items()}, "eager").run()
            got = loaded({p.name: joined.joined(p, given[p.name]) for p in kernel.params}, (), "fresh")
            for r, x, y in zip(kernel.results, want, got, strict=True):
                x = joined.joined(r, x)
                if x.shape != y.shape:
                    return f"{r.name}: shape {list(y.shape)}, not {list(x.shape)}"
                if not torch.allclose(x, y, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype]):
                    return f"{r.name}: {dtype} not within {TOLERANCE[dtype]}"
    return ""


def _answer(at: Any, *asked: Any) -> None:
    os.setsid()
    torch.set_num_threads(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    try:
        said = _said(*asked)
    except BaseException as error:
        said = f"{type(error).__name__}: {str(error)[:200]}"
    at.send(said)
    at.close()


def refused(candidate: str, spec: str, dtypes: Sequence[str] = ("f32", "bf16"), device: str = "cpu", timeout: float = 60.0) -> str:
    """Why `allclose` does not take a candidate; "" for one that it takes.  A process that ends, or takes longer, is refused."""
    context = multiprocessing.get_context("fork" if device == "cpu" else "spawn")
    mine, other = context.Pipe(False)
    process = context.Process(target=_answer, args=(other, candidate, spec, tuple(d for d in dtypes if d in TOLERANCE), device), daemon=True)
    process.start()
    other.close()
    try:
        said = mine.recv() if mine.poll(timeout) else "no answer in time"
    except (EOFError, OSError, ValueError, ImportError):
        said = "the process ended, or said what is no answer"
    process.kill()
    process.join()
    return said


__all__ = ["TOLERANCE", "TRIALS", "refused"]
