"""The first call of a Triton kernel: Triton compiles, kgen launches, with the arguments that the calls behind it get from the extension.

Without a GPU: Triton compiles for one that is not here, on tensors of the CPU, and what would be launched is written down.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kgen
from kgen.errors import KgenError
from kgen.runtime import driver, fast, modules, replay
from kgen.runtime.launchers import Triton
from kgen.runtime.toolchain import absent

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(not fast.wait(), reason="there is no extension here: no compiler, no Python.h, or another ABI")

CLIP = "clip(x: T[...], low: float, k: int) -> y: T[...]\ny = max(x, low) + k\n"
SOFTMAX = "soft(x: T[..., N]) -> y: T[..., N]\ne = exp(x - max[N](x))\ny = e / sum[N](e)\n"
TWO = "two(x: T[M, N]) -> (y: T[M, N], m: T[M])\ny = x / (1 + sum[M](x^2))\nm = max[N](y)\n"
GIVEN: dict[str, tuple[str, Callable[[], tuple], int]] = {
    "numbers": (CLIP, lambda: (torch.randn(3, 1000), 0.25, 7), 1),
    "rows": (SOFTMAX, lambda: (torch.randn(4, 1000),), 1),
    "long rows, in segments": (SOFTMAX, lambda: (torch.randn(2, 300_000),), 2),
    "several passes": (TWO, lambda: (torch.randn(64, 256),), 2),
}
PLACES = ctypes.POINTER(ctypes.c_void_p)
FAKE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, PLACES, ctypes.c_void_p)


class Loaded:
    """Stands for a loaded kernel: notes its launches."""

    made: list[Loaded]
    launches: list[tuple[Any, ...]]
    refuses = False

    def __init__(self, cubin: bytes, name: str):
        assert cubin.startswith(b"\x7fELF") and name.encode() in cubin
        self.made.append(self)
        self.kernel = len(self.made)

    def __call__(
        self, grid: int, device: Any, stream: int, values: list[Any], threads: int, shared: int, cluster: int, follows: bool
    ) -> None:
        if self.refuses:
            raise KgenError("CUDA: invalid argument")
        assert stream == 77 and cluster == 1 and not follows
        self.launches.append((self.kernel, grid, threads, shared, [ctypes.addressof(v) for v in values], values))


class Here:
    """What happened: launches of kgen's, those of Triton's, how often it compiled, and what is to become of what it compiled."""

    def __init__(self) -> None:
        self.own: list[tuple[Any, ...]] = []
        self.tritons: list[str] = []
        self.compiled = 0
        self.made: Callable[[Any], Any] = lambda compiled: compiled


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    from triton.runtime.jit import JITFunction

    found, real = Here(), JITFunction.run

    class Own(Loaded):
        made: list[Loaded] = []
        launches = found.own

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if not warmup:
            found.tritons.append(self.__name__)
        found.compiled += warmup
        return found.made(real(self, *args, grid=grid, warmup=True, **kwargs))

    monkeypatch.setattr(JITFunction, "run", run)
    monkeypatch.setattr(driver, "Function", Own)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)
    modules.import_source.cache_clear()  # of kernels that nobody has watched
    with absent("sm_90"):
        yield found
    modules.import_source.cache_clear()
    fast.set_up(fast.EXTENSION.module, {"launch": (fast.addresses() or {}).get("launch", 0)})


def kernel_of(text: str) -> kgen.Kernel:
    kernel = kgen.loads(text)
    kernel._launchers["cpp"] = Triton(kernel.kernel)
    return kernel


@pytest.mark.parametrize("name", GIVEN)
def test_a_first_launch_has_what_later_ones_have(name: str, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grid, threads, shared memory and each parameter's bytes, by kgen's launch in Python and by the extension's."""
    text, arguments, count = GIVEN[name]
    kernel, given = kernel_of(text), arguments()
    out = kernel._bound(given, {}, None, "torch")
    ours = [t.data_ptr() for t in (*given, *(out if isinstance(out, tuple) else (out,))) if isinstance(t, torch.Tensor)]
    widths: dict[int, list[int]] = {}
    made = replay.load

    def load(compiled: Any) -> Any:
        code = made(compiled)
        assert code is not None
        widths[code.function.kernel] = code.widths
        return code

    def read(function: int, places: Any) -> list[bytes]:
        return [ctypes.string_at(place, width) for place, width in zip(places, widths[function], strict=False)]

    later = []

    def launch(function: int, x: int, y: int, z: int, bx: int, by: int, bz: int, shared: int, stream: Any, places: Any, _: Any) -> int:
        assert (y, z, by, bz) == (1, 1, 1, 1)
        later.append((function, x, bx, shared, read(function, places[: len(widths[function])])))
        return 0

    fake = FAKE(launch)
    fast.set_up(fast.EXTENSION.module, {"launch": ctypes.cast(fake, ctypes.c_void_p).value or 0})
    monkeypatch.setattr(replay, "load", load)
    kernel(*given, out=out)
    first = [(function, x, threads, shared, read(function, places)) for function, x, threads, shared, places, _ in here.own]
    assert len(first) == count and not here.tritons and here.compiled == count
    assert all(len(places) == len(widths[function]) for function, _, _, _, places, _ in here.own)
    monkeypatch.setitem(kernel.__dict__, "_calls", None)  # Python is not asked
    kernel(*given, out=out)
    assert [launch[:4] for launch in later] == [launch[:4] for launch in first]
    for now, before in zip(later, first, strict=True):
        differ = [k for k, (a, b) in enumerate(zip(now[4], before[4], strict=True)) if a != b]
        assert not {int.from_bytes(before[4][k], "little") for k in differ} & {*ours, 0}  # memory to work in is another each time
        assert all(len(before[4][k]) == 8 for k in differ) and (name not in ("numbers", "rows") or not differ)
        assert any(int.from_bytes(b, "little") in ours for b in before[4])


class Other:
    """A compiled kernel with other metadata."""

    def __init__(self, compiled: Any, **changed: Any):
        self.src, self.asm, self.metadata = compiled.src, compiled.asm, compiled.metadata._replace(**changed)


CHANGES: dict[str, dict[str, Any]] = {
    "clusters": {"num_ctas": 2}, "cooperative": {"launch_cooperative_grid": True}, "chained": {"launch_pdl": True},
    "memory of its own": {"global_scratch_size": 128}, "a profiler's memory": {"profile_scratch_size": 128},
    "other warps": {"num_warps": 2},
}  # fmt: skip


REASONS = (*CHANGES, "the driver refuses", "the driver cannot load it", "as it was not known", "hook", "load hook", "AMD")


@pytest.mark.parametrize("why", REASONS)
def test_triton_launches_what_kgen_does_not(why: str, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and nothing is learned of it; what was refused, and of what kinds, is known in the next call too."""
    from triton import knobs

    kernel, lessons = kernel_of(CLIP), []
    real = Triton.lesson
    monkeypatch.setattr(Triton, "lesson", lambda *args: lessons.append(real(*args)))
    if why in CHANGES:
        here.made = lambda compiled: Other(compiled, **CHANGES[why])
    elif why == "the driver refuses":
        monkeypatch.setattr(Loaded, "refuses", True)
    elif why == "the driver cannot load it":

        def missing(*_: Any) -> Any:
            raise KgenError("there is no CUDA driver that kgen can use")

        monkeypatch.setattr(driver, "Function", missing)
    elif why == "as it was not known":
        here.made = lambda compiled: type("Compiled", (), {})()
    elif why == "AMD":
        monkeypatch.setattr(torch.version, "hip", "6.4")
    else:
        chain = knobs.runtime.launch_enter_hook if why == "hook" else knobs.runtime.kernel_load_start_hook
        monkeypatch.setattr(chain, "calls", [print])
    for turn in range(1, 3):
        kernel(torch.randn(3, 1000), 0.25, 7)
        assert here.tritons == ["clip_kernel"] * turn and not here.own and lessons == [None] * turn


def test_the_error_is_tritons_where_both_refuse(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.errors import OutOfResources

    monkeypatch.setattr(Loaded, "refuses", True)
    kernel = kernel_of(CLIP)

    def made(compiled: Any) -> Any:
        if here.tritons:
            raise OutOfResources(400_000, 232_448, "shared memory")
        return compiled

    here.made = made
    with pytest.raises(OutOfResources, match="shared memory, Required: 400000"):
        kernel(torch.randn(3, 1000), 0.25, 7)


def test_errors_of_the_compiler_are_raised_once(here: Here) -> None:
    kernel = kernel_of(CLIP)

    def made(compiled: Any) -> Any:
        raise RuntimeError("does not compile")

    here.made = made
    with pytest.raises(RuntimeError, match="does not compile"):
        kernel(torch.randn(3, 1000), 0.25, 7)
    assert here.compiled == 1 and not here.tritons


def test_torch_may_work_between_launches(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """kgen launches each; but the next call like it is not only that."""
    launcher = Triton(kgen.loads(CLIP).kernel)
    replay.watch(launcher.module)
    x = torch.randn(100)
    with replay.Recording() as recording:
        launcher.function(x * 2, 0.5, 3)
        launcher.function(x, 0.5, 3)
    assert not recording.plain and len(here.own) == 2 and not here.tritons
    assert all(one is not None and len(one.tensors) == 2 for one in recording.launches)
    launcher.function(x, 0.5, 3)  # nobody records this
    assert len(here.own) == 2 and here.tritons == ["clip_kernel"]


def test_grids_that_are_not_plain_and_arguments_that_do_not_fit(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher, described = Triton(kgen.loads(CLIP).kernel), []
    real = replay.describe
    monkeypatch.setattr(replay, "describe", lambda *args: described.append(args) or real(*args))
    replay.watch(launcher.module)
    with replay.Recording():
        launcher.function(torch.randn(100), 0.5, 3)
    ((kernel, args, given, grid, compiled, code),) = described
    given = {**dict(zip(kernel.arg_names, args, strict=False)), **given}

    def known(grid: Any = grid, code: Any = code, **other: Any) -> bool:
        return real(kernel, (), given | other, grid, compiled, code) is not None

    pointer = next(name for name, value in given.items() if isinstance(value, torch.Tensor))
    assert known()
    for other in ((0,), (3, 2), (2**31,), lambda meta: (3,)):
        assert not known(other)
    assert known(k=4) and not known(k=2**64)
    assert not known(**{pointer: given[pointer].data_ptr()})
    for other in (None, code._replace(widths=code.widths[:-4]), code._replace(widths=[4, *code.widths])):
        assert not known(code=other)


def test_launches_are_written_down(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """What of a launch the call's tensors and numbers are."""
    lessons, real = [], Triton.lesson
    monkeypatch.setattr(Triton, "lesson", lambda *args: lessons.append(real(*args)))
    clip, x = kernel_of(CLIP), torch.randn(3, 1000)
    clip(x, 0.25, 7)
    (lesson,) = lessons
    (launch,) = lesson.launches
    assert launch.function == 1 and launch.grid[1:] == (1, 1) and launch.block == (128, 1, 1)
    assert [which for _, which, _ in launch.pointers] == [0, 1] and [which for _, which, _ in launch.numbers] == [0, 1]
    assert lesson.compared == 0 and len(launch.parameters) >= 4 + 12 and lesson.makes == ()
    words = [int.from_bytes(launch.arguments[at : at + 8], "little") for at in launch.parameters]
    assert 3000 in words and 7 in words
    clip(x, 0.25, 7, out=x)
    assert lessons[-1] is None  # one tensor for two parameters
    power = kernel_of("power(x: T[...], t: int) -> y: T[...]\ny = x / (1 - 0.9^t)\n")
    power(x, 3)
    assert lessons[-1].compared == 1 and lessons[-1].launches[0].numbers == ()
    assert len(here.own) == 3 and not here.tritons
