"""Repeated calls through the extension give what calls without it give, on every target, and leave nothing behind."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import kgen
from kgen.runtime import fast, recall, replay
from tests import warm
from tests.cuda.emulated import Emulated
from tests.runtime.test_calls import MIX, STEP, TWO, laid_out, same

pytestmark = pytest.mark.skipif(not fast.wait(), reason="there is no extension here: no compiler, no Python.h, or another ABI")


def counts(kernel: kgen.Kernel) -> tuple[int, int]:
    """The plans and the variants of a kernel."""
    return kernel._fast.counts()  # type: ignore[attr-defined]


@contextlib.contextmanager
def no_slow_calls(kernel: kgen.Kernel, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fails where a call goes the general way."""
    with monkeypatch.context() as m:
        m.setitem(kernel.__dict__, "_calls", None)
        yield


def test_a_second_call_does_not_run_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path))  # in which no call of another process is kept
    mix, x, w, out = kgen.loads(MIX), torch.randn(3, 4), torch.randn(4), torch.empty(3, 4)
    ways: list[tuple[tuple, dict[str, Any]]] = [
        ((x, w, 0.5), {}), ((x, w), {"a": 0.5}), ((x, w, 0.5, 3), {}), ((), {"k": -1, "a": 2, "w": w, "x": x}), ((x, w, 1.0), {"out": out}),
        ((x, w, 1.0), {"out": (out,)}), ((x, w, 1.0), {"target": "cpp", "out": out}), ((x, w, 1.0), {"out": None, "target": None}),
    ]  # fmt: skip
    for args, kwargs in ways:  # a first call may come out of the cache, which teaches nothing
        mix(*args, **kwargs)
    want = [mix(*args, **kwargs).clone() for args, kwargs in ways]
    with no_slow_calls(mix, monkeypatch):
        for (args, kwargs), wanted in zip(ways, want, strict=True):
            got = mix(*args, **kwargs)
            assert torch.equal(got, wanted)
            assert got is out if kwargs.get("out") is not None else got is not out
    assert counts(mix) == (3, 3)  # fresh, out, out on a named target


def test_calls_agree_with_those_of_the_general_way() -> None:
    chance, mix, two = random.Random(1), kgen.loads(MIX), kgen.loads(TWO)
    for _ in range(150):
        n, lead = chance.choice((0, 1, 3, 8)), tuple(chance.choices((0, 1, 2, 5), k=chance.randrange(3)))
        dtype = chance.choice((torch.float32, torch.float64))
        x, w = laid_out((*lead, n), dtype, chance.randrange(5)), laid_out((n,), dtype, chance.choice((0, 2, 4)))
        a, k = chance.choice((0.5, -3, 1e30, -0.0, float("nan"))), chance.choice((2, -7, 2**40))
        want = mix._bound((x, w, a, k), {}, None, None)
        for _ in range(3):
            got = mix(x, w, a, k)
            assert got.stride() == want.stride() and torch.equal(got.nan_to_num(7.5), want.nan_to_num(7.5))
        if dtype == torch.float32:
            want = two._bound((x, w), {}, None, None)
            assert all(same(two(x, w), want) for _ in range(3))
            outs = tuple(torch.empty_like(t) for t in want)
            assert all(two(x, w, out=outs) is outs for _ in range(3)) and same(outs, want)


def test_states_are_written_and_marked() -> None:
    step, g = kgen.loads(STEP), torch.randn(5, 3)
    p, m = torch.randn(5, 6)[:, ::2], torch.zeros(5, 3)
    q, n = p.clone(), m.clone()
    for turn in range(5):
        versions = p._version, m._version
        y = step(p, g, m, 0.1 * turn)
        assert same(step._bound((q, g, n, 0.1 * turn), {}, None, None), y)
        assert torch.equal(p, q) and torch.equal(m, n) and (p._version, m._version) == (versions[0] + 1, versions[1] + 1)
    assert counts(step) == (1, 1)
    y = torch.empty(5, 3)
    for turn in range(1, 4):
        step(p, g, m, 0.1, out=y)
        assert y._version == turn


MODES = ["function", "dispatch", "dual", "vmap", "grad", "autocast", "compiling", "patched", "trace", "requires", "subclass", "negated", "freed"]


@pytest.mark.parametrize("how", MODES)
def test_what_is_out_of_the_ordinary_goes_the_general_way(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.autograd import forward_ad
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Own(torch.Tensor):
        pass

    class Function(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    mix, x, w = kgen.loads(MIX), torch.randn(4), torch.randn(4)
    for _ in range(2):
        mix(x, w, 1.0)
    entered: list[Any] = []
    monkeypatch.setattr(kgen.Kernel, "__call__", lambda self, *args, **kwargs: entered.append(args) or x * w)
    fast.EXTENSION.module.install(kgen.Kernel, kgen.Kernel.__dict__["_fast"])
    mix(x, w, 1.0)
    assert not entered
    try:
        with contextlib.ExitStack() as stack:
            call = lambda v: mix(v, w, 1.0)  # noqa: E731
            if how in ("function", "dispatch", "dual", "autocast"):
                stack.enter_context(
                    {"function": Function, "dispatch": Dispatch, "dual": forward_ad.dual_level,
                     "autocast": lambda: torch.autocast("cpu", torch.bfloat16)}[how]()  # type: ignore[operator]
                )  # fmt: skip
            if how == "compiling":
                monkeypatch.setattr(torch.compiler, "_is_compiling_flag", True)
            elif how == "patched":
                monkeypatch.setattr(torch.compiler, "is_compiling", lambda: False)
            if how == "vmap":
                torch.vmap(call)(x.expand(2, 4))
            elif how == "grad":
                torch.func.grad(lambda v: call(v).sum())(x)
            elif how == "trace":
                torch.jit.trace(call, (x,), check_trace=False)
            elif how == "freed":
                v = torch.randn(4)
                v.untyped_storage().resize_(0)
                call(v)
            else:
                call({"subclass": x.as_subclass(Own), "requires": x.clone().requires_grad_(), "negated": torch._neg_view(x)}.get(how, x))
        assert entered
        del entered[:]
        mix(x, w, 1.0)
        assert bool(entered) == (how in ("compiling", "patched"))
    finally:
        monkeypatch.undo()
        fast.EXTENSION.module.install(kgen.Kernel, kgen.Kernel.__dict__["_fast"])


def test_grad_mode_and_inference_decide() -> None:
    mix, x, w = kgen.loads(MIX), torch.nn.Parameter(torch.randn(4)), torch.randn(4)
    for _ in range(3):
        with torch.no_grad():
            assert not mix(x, w, 1.0).requires_grad
        assert mix(x, w, 1.0).requires_grad
        with torch.inference_mode():
            assert mix(x, w, 1.0).is_inference()
        assert not mix(x.detach(), w, 1.0).is_inference()
    step, kept = kgen.loads(STEP), []
    with torch.inference_mode():
        kept.append(torch.randn(4))
    for _ in range(3):
        step(torch.randn(4), torch.randn(4), torch.randn(4), 1.0)
        with pytest.raises(kgen.KgenError, match="p is an inference tensor"):
            step(kept[0], torch.randn(4), torch.randn(4), 1.0)


def test_inference_tensors_have_no_version_to_count() -> None:
    mix, x, w = kgen.loads(MIX), torch.randn(4), torch.randn(4)
    with torch.inference_mode():
        out = torch.empty(4)
        assert fast.usable(fast.EXTENSION.module)
    for _ in range(4):
        assert mix(x, w, 1.0, out=out) is out
    with torch.inference_mode():
        for _ in range(4):
            assert mix(x, w, 1.0, out=out) is out
    assert torch.equal(out, mix(x, w, 1.0))


def test_overlap_is_refused_and_in_place_is_not() -> None:
    mix, w, buffer = kgen.loads(MIX), torch.randn(4), torch.randn(8)
    x = buffer[:4]
    for _ in range(3):
        mix(x, w, 1.0, out=torch.empty(4))
    want = mix(x, w, 1.0)
    with pytest.raises(kgen.KgenError, match="out overlaps x"):
        mix(x, w, 1.0, out=buffer[1:5])
    assert torch.equal(mix(x, w, 1.0, out=x), want) and torch.equal(x, want)


def test_nothing_is_leaked() -> None:
    step = kgen.loads(STEP)
    p, g, m, y = (torch.randn(16) for _ in range(4))
    kept: list[Any] = [p, g, m, y, step._fast if hasattr(step, "_fast") else None]
    for _ in range(5):
        step(p, g, m, 0.1), step(p, g, m, 0.1, out=y), step(p=p, g=g, m=m, lr=0.1)
    before = [sys.getrefcount(t) for t in kept] + [sys.getrefcount(o) for o in (torch.float32, None, calls_empty())]
    for _ in range(3000):
        step(p, g, m, 0.1), step(p, g, m, 0.1, out=y), step(p=p, g=g, m=m, lr=0.1)
    after = [sys.getrefcount(t) for t in kept] + [sys.getrefcount(o) for o in (torch.float32, None, calls_empty())]
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True))
    gone = weakref.ref(step(p, g, m, 0.1))
    assert gone() is None
    kernel, owned = weakref.ref(step), weakref.ref(step._calls)
    del step
    gc.collect()
    assert kernel() is None and owned() is None


def calls_empty() -> Any:
    from kgen.runtime import calls

    return calls._empty_strided_cpu


def test_many_shapes_and_many_variants_are_bounded() -> None:
    mix = kgen.loads(MIX)
    for n in range(1, 600):
        x, w = torch.randn(n), torch.randn(n)
        assert torch.equal(mix(x, w, 1.0), mix(x, w, 1.0))
    assert counts(mix)[0] <= 512


def test_arguments_travel_as_the_abi_has_them(tmp_path: Path) -> None:
    """Integers, pointers and doubles in any order, in registers and beyond."""
    chance, module = random.Random(3), fast.EXTENSION.module
    kinds = ["ifp"[chance.randrange(3)] for _ in range(60)]
    for count in (0, 1, 5, 14, 20, 40, 60):
        names = {"i": "long", "f": "double", "p": "double*"}
        params = ", ".join(f"{names[kind]} a{k}" for k, kind in enumerate(kinds[:count])) or "void"
        total = " + ".join(["0", *(f"{k + 1} * {'*' if kind == 'p' else ''}a{k}" for k, kind in enumerate(kinds[:count]))])
        path = tmp_path / f"f{count}.c"
        path.write_text(f"double got; void f({params}) {{ got = {total}; }}")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(path.with_suffix(".so")), str(path)], check=True)
        library = ctypes.CDLL(str(path.with_suffix(".so")))
        values = [chance.randrange(-100, 100) for _ in kinds[:count]]
        boxes = [ctypes.c_double(v) for v in values]
        fixed = [{"i": v, "f": ctypes.c_double(v), "p": ctypes.byref(b)}[kind] for v, b, kind in zip(values, boxes, kinds, strict=False)]
        lesson = fast.cpu_lesson([(library.f, fixed, [], [])], [])
        assert lesson is not None and module.invoke(tuple(lesson.launches[0]))
        assert ctypes.c_double.in_dll(library, "got").value == sum((k + 1) * v for k, v in enumerate(values))


FAKE = r"""
typedef _Bool (*entry_t)(unsigned, unsigned, void**);
unsigned seen[16]; int refuse;
int launch(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* stream, void** params, void** extra) {
    if (refuse) return refuse;
    return !((entry_t)f)(gx, bx, params);
}
typedef struct { unsigned grid[3], block[3], shared; void *stream; struct { int id, pad; unsigned value[16]; } *attributes; unsigned count; } Config;
int following;  // launches that may begin before the one before has ended
int launch_ex(const Config* c, void* f, void** params, void** extra) {
    for (unsigned k = 0; k < c->count; k++) following += c->attributes[k].id == 6 && c->attributes[k].value[0] == 1;
    return launch(f, c->grid[0], 1, 1, c->block[0], 1, 1, c->shared, c->stream, params, extra);
}
"""

GIVEN = {
    "MIX": (MIX, lambda: (torch.randn(6, 8), torch.randn(8), 0.5, 3)),
    "STEP": (STEP, lambda: (torch.randn(40), torch.randn(40), torch.randn(40), 0.25)),
    "TWO": (TWO, lambda: (torch.randn(3, 40), torch.randn(40))),
    "columns": (
        "columns(x: T[M, N]) -> (y: T[M, N], s: T[N])\ny = x / (1 + sum[N](x^2))\ns = sum[M](x)\n",
        lambda: (torch.randn(70, 40),),
    ),
    "derived": (
        "adam(p: T[...], g: T[...], t: int, b: float = 0.9) -> p': T[...]\np' = p - g / (1 - b^t)\n",
        lambda: (torch.randn(33), torch.randn(33), 3),
    ),
}


@pytest.mark.parametrize("name", GIVEN)
def test_cuda_launches_are_replayed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launches of the CUDA target, on kernels that run on the CPU: same results from what the launcher left, with other tensors,
    alignments and numbers."""
    torch.manual_seed(0)
    text, arguments = GIVEN[name]
    aligned = arguments()
    first = torch.randn(aligned[0].numel() + 1)[1:].view(aligned[0].shape)  # 4 bytes beyond a multiple of 16
    shifted = (first, *aligned[1:])
    launcher = Emulated(text, tmp_path, aligned, shifted)
    path = tmp_path / "fake.c"
    path.write_text(FAKE)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(path.with_suffix(".so")), str(path)], check=True)
    fake = ctypes.CDLL(str(path.with_suffix(".so")))
    real = launcher.run.function

    def function(expression: str, arch: str) -> Any:
        start = real(expression, arch)
        start.kernel = ctypes.cast(getattr(launcher.library, f"launch_{launcher.expressions.index(expression)}"), ctypes.c_void_p).value
        start.entry = expression
        return start

    monkeypatch.setattr(launcher.run, "function", function)

    launched: list[Any] = []

    class Launched:
        def __call__(self, call: Any) -> None:
            launcher.launch(call, 0, 0)
            launched.append(call.launched)

        def lesson(self, plan: Any, call: Any) -> Any:
            return fast.cuda_lesson(launcher, plan, call)

    fast.set_up(fast.EXTENSION.module, {name: ctypes.cast(getattr(fake, name), ctypes.c_void_p).value or 0 for name in ("launch", "launch_ex")})
    kernel, plain = kgen.loads(text), kgen.loads(text)
    kernel._launchers["cpp"] = Launched()
    for given in (aligned, shifted):
        kernel(*given)
    assert counts(kernel) == (1, 2)
    with no_slow_calls(kernel, monkeypatch):
        for turn, places in enumerate((aligned, shifted, aligned, shifted)):
            for a in places:
                a.normal_() if isinstance(a, torch.Tensor) else None
            given = tuple(a + turn if isinstance(a, int) else a * (1.5 + turn) if isinstance(a, float) else a for a in places)
            other = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in given)
            got, want = kernel(*given), plain._bound(other, {}, None, "torch")
            for a, b in zip((*in_tuple(got), *given), (*in_tuple(want), *other), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    follows = sum(step.follows for made in launched[0] for step in made.steps)
    assert ctypes.c_int.in_dll(fake, "following").value == 4 * follows and bool(follows) == (name == "columns")
    if name == "TWO":  # whose numbers need no arithmetic on the host
        calls_of_other_processes(text, kernel, launcher, (aligned, shifted), monkeypatch)
    ctypes.c_int.in_dll(fake, "refuse").value = 700  # the general way is taken, and works
    torch.testing.assert_close(kernel(*aligned), kernel(*aligned)) if not any(r.state for r in kernel.kernel.results) else None


def calls_of_other_processes(text: str, kernel: kgen.Kernel, launcher: Emulated, calls: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    """What these calls launched is read back for a kernel whose spec is not even parsed."""
    with monkeypatch.context() as m:
        m.setattr(recall, "DEVICES", {"cpu"})
        taught = kgen.loads(text)
        taught._launchers["cpp"] = kernel._launchers["cpp"]
        want = [taught(*given) for given in calls]
        assert taught._recipes == 1  # of the second, which has another place in the same plan, nothing is kept
        m.setattr(recall, "possible", lambda: True)
        m.setattr("kgen.runtime.again._function", lambda entry: Loaded(launcher.run.function(entry, "").kernel))
        m.setattr("kgen.runtime.kernel._checked", None)
        again = kgen.loads(text)
        assert again.name == taught.name and again.doc == taught.doc and again._names == taught._names
        for _ in range(2):
            assert same(again(*calls[0]), want[0])
        assert "kernel" not in again.__dict__
        with pytest.raises(TypeError, match="'NoneType' object is not callable"):
            again(*calls[1])  # this one would be checked now


def test_a_call_that_is_recalled_imports_no_compiler() -> None:
    """The first call of a process whose cache has it takes as long as what it imports."""
    code = "import kgen.runtime.kernel, kgen.runtime.again, sys; print(*(m for m in sys.modules if m.split('.')[0] in {'kgen', 'sympy', 'jinja2'}))"
    found = set(warm.run("-c", code).stdout.split())
    assert found <= {
        "kgen", "kgen.errors", "kgen.hooks", "kgen.resources", "kgen.runtime", "kgen.types", "kgen.version",
        *(f"kgen.runtime.{m}" for m in ("again", "cache", "drawn", "driver", "fast", "kernel", "memory", "recall")),
    }  # fmt: skip


def test_a_kgen_with_another_file_recalls_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Headers of CUDA's library are in the machine code as much as anything else is."""
    for kind in ("templates", "specs"):
        (tmp_path / kind / "library").mkdir(parents=True)
    monkeypatch.setattr(recall, "resource", tmp_path.joinpath)
    seen = [recall.own.__wrapped__()]
    for name in ("templates/library/rows.cuh", "templates/rows.cu.jinja"):
        (tmp_path / name).write_text("//")
        seen.append(recall.own.__wrapped__())
    assert len(set(seen)) == 3


class Loaded:
    def __init__(self, kernel: int):
        self.kernel = kernel

    def allow(self, device: int, shared: int, cluster: int) -> None:
        pass


def in_tuple(x: Any) -> tuple:
    return x if isinstance(x, tuple) else (x,)


@pytest.mark.parametrize("why", ["refused", "no compiler", "it fails", "it makes no library", "it makes another library", "a fork"])
def test_without_the_extension_calls_are_the_same(why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast.disk, "folder", lambda: tmp_path)
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\n" + {"it makes no library": "", "it makes another library": 'for last; do :; done; echo no >"$last"'}.get(why, "exit 1"))
    script.chmod(0o700)
    monkeypatch.setattr(fast, "compiler", lambda: None if why == "no compiler" else (str(script),))
    monkeypatch.setenv("KGEN_FASTCALL", "0" if why == "refused" else "1")
    extension = fast.Extension()
    monkeypatch.setattr(fast, "EXTENSION", extension)
    silu, x = kgen.load("silu"), torch.ones(5)
    want = silu(x)
    if why == "a fork":
        extension.owner -= 1
    assert extension.get(wait=True) is None and extension.settled and extension.cached() is None
    assert all(torch.equal(silu(x), want) for _ in range(3)) and not hasattr(silu, "_fast")


def test_what_a_short_process_builds_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast.disk, "folder", lambda: tmp_path)
    short, later = fast.Extension(), fast.Extension()
    assert later.cached() is None and not later.settled
    short.get()
    assert short.process is not None
    short._stop()
    settled: list[str] = []
    monkeypatch.setattr(later, "_settle", settled.append)
    assert later.cached() is None and not os.path.exists(short.folder) and [Path(path).parent for path in settled] == [tmp_path]


def test_an_extension_that_misreads_tensors_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fast.EXTENSION.module
    assert fast.trial(module)

    class Wrong:
        def __getattr__(self, name: str) -> Any:
            return getattr(module, name)

        def read(self, t: torch.Tensor) -> Any:
            keys, dtype, device, sizes, strides, place, requires = module.read(t)
            return keys, dtype, device, sizes, strides, place + 8, requires

    assert not fast.trial(Wrong())
    monkeypatch.setattr(fast, "TORCH", {**fast.TORCH, "get_dim": "aoti_torch_no_such_function"})
    assert fast.addresses() is None and not fast.set_up(module)


def test_parameters_of_ptx_are_counted() -> None:
    ptx = """.visible .entry gelu_kernel(
	.param .u64 .ptr .global .align 1 gelu_kernel_param_0,
	.param .u64 .ptr .global .align 1 gelu_kernel_param_1,
	.param .f64 gelu_kernel_param_2, .param .u32 gelu_kernel_param_3,
	.param .u64 .ptr .global .align 1 gelu_kernel_param_4
)
.reqntid 128"""
    assert replay.entry(ptx) == [8, 8, 8, 4, 8]
    assert replay.entry(ptx + ptx) is None and replay.entry("") is None


def test_as_many_tensors_as_there_is_room_for() -> None:
    module = fast.EXTENSION.module
    x, out, most = torch.ones(3), torch.empty(3), module.TENSORS
    for count in (1, most - 1, most):
        made = fast.new(module, [(f"x{k}", "t") for k in range(count)], [None] * count, 1)
        args = (x,) * count
        plan = (0, -1, 0, (), 0, fast.allocator(x.device), (), 0, 0, False, False)
        assert made.plan(args, {"out": out}, *plan) == (count < most)
        assert made.call(args, {"out": out}) is NotImplemented  # it has no variant
        assert made.variant(args, {"out": out}, (), 0, None, (), (), None) == (count < most)
        assert made.call(args, {"out": out}) is (out if count < most else NotImplemented)
    assert fast.new(module, [("x", "t")] * (most + 1), [None] * (most + 1), 1) is False
