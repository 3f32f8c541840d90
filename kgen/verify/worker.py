"""A candidate's process: it loads the candidate, makes tensors of the places it is told, calls it, and says what came.

It knows nothing of what results are to be.  On the CPU the tensors lie in memory that the examination shares, and looks at itself; on a
GPU they are copies of it, and are copied back.  What this module uses of torch is bound before the candidate is loaded, so that what a
candidate replaces is replaced for itself alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import sys
import tempfile
import time
import traceback
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kgen.verify import wire
from kgen.verify.loaded import Loaded, Unloadable, Untriable
from kgen.verify.loading import load
from kgen.verify.memory import PAGE, Place, full

_BASE = torch._C.TensorBase
_detach, _contiguous, _cpu, _data_ptr = _BASE.detach, _BASE.contiguous, _BASE.cpu, _BASE.data_ptr
_copy, _fill, _as_strided, _view = _BASE.copy_, _BASE.fill_, torch.as_strided, _BASE.view
_empty, _frombuffer, _string_at, _is_complex = torch.empty, torch.frombuffer, ctypes.string_at, _BASE.is_complex
_reshape = _BASE.reshape
_synchronize, _sleep, _clock = getattr(torch._C, "_cuda_synchronize", lambda: None), getattr(torch.cuda, "_sleep", None), time.perf_counter
GPU = 0.8  # of a GPU's memory that a candidate may have
PERTURB = -6  # glibc's M_PERTURB
REQUESTS = ("load", "place", "refresh", "call", "read", "memory", "operators", "capture", "replay", "tall", "rows", "time", "clock")
TURN = 30.0  # seconds to wait in until no other process has a GPU's memory full
#: Operators that only make, see or move tensors.
MOVES = frozenset(
    "empty empty_like empty_strided new_empty new_empty_strided new_zeros new_ones new_full zeros zeros_like ones ones_like full "
    "full_like fill_ zero_ clone copy_ _to_copy contiguous set_ resize_ lift_fresh lift_fresh_copy record_stream is_pinned "
    "_local_scalar_dense item arange scalar_tensor".split()
)


def serve(connection: Any) -> None:
    """Answer requests until the other end has gone."""
    made = Worker()
    while True:
        try:
            message, blobs = wire.receive(connection)
        except wire.Closed:
            os._exit(0)
        try:
            answer, out = made.answer(message, blobs)
        except BaseException as error:
            answer, out = {"failed": described(error)}, []
        try:
            wire.send(connection, answer, out)
        except wire.Closed:
            os._exit(0)


def described(error: BaseException) -> dict[str, Any]:
    """An exception as plain data: its type, its words, and the last lines of where it came from."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    try:
        said = str(error)
    except Exception:
        said = "an error without words"
    return {"type": type(error).__name__, "text": said[:4000], "trace": "".join(lines)[-4000:]}


class Counting(TorchDispatchMode):
    """Counts torch's operators by name, but for those that only make, see or move tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch asks whether its compiler is to be kept out of the mode, which it imports to do so: a second, for nothing here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__ if hasattr(func, "overloadpacket") else str(func)
        schema = getattr(func, "_schema", None)
        views = schema is not None and any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        if name not in MOVES and not views:
            self.counts[name] = self.counts.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


class Worker:
    """What is asked of a candidate's process, one method for each request; see `answer`."""

    def __init__(self) -> None:
        self.candidate: Loaded | None = None
        self.device = "cpu"
        self.mapping: Any = None
        self.path, self.size = "", 0
        self.tensors: dict[str, Any] = {}
        self.buffers: dict[str, Any] = {}
        self.sources: dict[str, Any] = {}
        self.places: dict[str, Place] = {}
        self.kept: dict[int, list[Any]] = {}
        self.first: dict[int, list[bytes]] = {}
        self.graph: Any = None
        self.turn: Any = None  # a file that is locked while this process fills the GPU's memory
        self.exact = False  # whether a tensor on a GPU is an allocation of its own

    def answer(self, message: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        """Do what a message says: its `do` is the name of a method, the rest are its arguments."""
        what = message.pop("do")
        if what not in REQUESTS:
            raise ValueError(f"there is no request {what!r}")
        return getattr(self, what)(**message)

    def load(
        self, named: dict[str, Any], interface: dict[str, Any], device: str, path: str, limit: int, timing: bool = False
    ) -> tuple[dict, list]:
        """Load the candidate; what it takes, or why it cannot be loaded.  `path` is the shared memory's file, `limit` the bytes that
        the process may have, `timing` whether it will be timed."""
        self.path, self.device = path, device
        if device == "cpu" and limit:
            _limit(limit)
        if device == "cuda":
            try:
                torch.cuda.init()
                if limit:
                    torch.cuda.set_per_process_memory_fraction(GPU)
                _empty(1, device="cuda")
            except Exception as error:
                if full(str(error)):
                    return {"no room": str(error)}, []
                raise
        torch.set_grad_enabled(False)
        if timing:
            import kgen.verify.timed  # noqa: F401  before anything of the candidate's
        try:
            self.candidate = load(named, interface, device)
        except Unloadable as error:
            return {"unloadable": str(error), "untried": isinstance(error, Untriable)}, []
        except BaseException as error:
            return {"unloadable": f"{type(error).__name__}: {error}", "trace": described(error)["trace"]}, []
        c = self.candidate
        said = {"takes": c.takes, "out": c.out, "destination": c.destination, "title": c.title, "claims": c.claims, "own": c.own}
        return said | {"optional": c.optional, "made": c.made}, []

    # Tensors

    def place(self, size: int, places: list[Any], guards: bool, perturb: int) -> tuple[dict, list]:
        """Make tensors of places.  On the CPU the pages beside each region are closed; fresh memory is filled with `perturb`."""
        self.tensors, self.buffers, self.sources, self.kept, self.first, self.graph = {}, {}, {}, {}, {}, None
        if self.turn is not None:
            self._end_of_turn({})
        if self.mapping is None or size != self.size:
            self.mapping = None
            gc.collect()
            with open(self.path, "r+b") as file:
                self.mapping = mmap.mmap(file.fileno(), size)
            self.size = size
            self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.mapping))
        self.places = {p.name: p for p in map(Place.of, places)}
        _perturb(perturb)
        self.pattern = perturb
        if self.device == "cpu":
            _protect(self.base, self.size, 3)
        elif any(p.far for p in self.places.values()):
            self._take_turn()
            if self.turn is None:
                return {"no room": "other processes fill the memory"}, []
        for name, p in self.places.items():
            dtype = getattr(torch, p.dtype)
            if self.device == "cuda":
                try:
                    self.tensors[name] = self._on_device(p, dtype)
                except Exception as error:
                    if full(str(error)):
                        return {"no room": str(error)}, []
                    raise
                continue
            if p.size:
                whole = _frombuffer(self.mapping, dtype=dtype, offset=p.at, count=p.size // dtype.itemsize)
            else:
                whole = _empty(0, dtype=dtype)
            self.tensors[name] = _as_strided(whole, p.shape, p.stride, p.offset)
            if guards:
                _protect(self.base + p.begin - PAGE, PAGE, 0)
                _protect(self.base + p.end, PAGE, 0)
        return {}, []

    def _on_device(self, p: Place, dtype: Any) -> Any:
        """A tensor on the GPU, in a copy of its region."""
        if p.far:
            made = torch.empty_strided(p.shape, p.stride, dtype=dtype, device="cuda")
            self.buffers[p.name] = made
            self.sources[p.name] = self._shared(p, dtype).to("cuda")
            _copy(made, self.sources[p.name])
            return made
        if not p.size:
            return _empty(0, dtype=dtype, device="cuda").as_strided(p.shape, p.stride)
        begin, end = (p.at, p.at + p.size) if self.exact else (p.begin, p.end)
        region = _frombuffer(self.mapping, dtype=torch.uint8, offset=begin, count=end - begin)
        self.sources[p.name] = region.to("cuda")
        buffer = _empty(end - begin, dtype=torch.uint8, device="cuda")
        _copy(buffer, self.sources[p.name])
        self.buffers[p.name] = buffer
        start = p.at - begin
        whole = buffer[start : start + p.size].view(dtype)
        return _as_strided(whole, p.shape, p.stride, whole.storage_offset() + p.offset)

    def _shared(self, p: Place, dtype: Any) -> Any:
        """A far tensor as it lies in the shared memory."""
        whole = _frombuffer(self.mapping, dtype=dtype, offset=p.at, count=p.size // dtype.itemsize)
        return _as_strided(whole, p.shape, p.stride, p.offset)

    def refresh(self) -> tuple[dict, list]:
        """Take what the shared memory holds now, in the same tensors."""
        if self.device == "cuda":
            for name in self.buffers:
                p = self.places[name]
                if p.far:
                    self.sources[name] = self._shared(p, getattr(torch, p.dtype)).to("cuda")
                else:
                    region = _frombuffer(self.mapping, dtype=torch.uint8, offset=p.begin, count=p.end - p.begin)
                    self.sources[name] = region.to("cuda")
                _copy(self.buffers[name], self.sources[name])
            _synchronize()
        return {}, []

    def memory(self) -> tuple[dict, list]:
        """Put what the tensors' memory holds into the shared memory, where it is no part of it."""
        if self.device == "cuda":
            _synchronize()
            for name in self.buffers:
                p = self.places[name]
                if p.far:
                    _copy(self._shared(p, getattr(torch, p.dtype)), _cpu(self.buffers[name]))
                else:
                    region = _frombuffer(self.mapping, dtype=torch.uint8, offset=p.begin, count=p.end - p.begin)
                    _copy(region, _cpu(self.buffers[name]))
        return {}, []

    # Calls

    def call(
        self, numbers: dict[str, Any], outs: list[str], way: str, keep: int, side: bool = False, spare: list[int] | None = None
    ) -> tuple[dict, list]:
        """Call the candidate: its results, described and as bytes, or what it raises.  `outs` are the tensors to write results to, `way`
        is "fresh", "out" or "destination", `keep` the name under which results stay alive.  `side` has the call on another stream, behind
        work that its arguments wait for; `spare` are sizes in bytes of blocks that are filled and given back to the allocator before."""
        if self.device == "cuda":
            return self._called_on_gpu(numbers, outs, way, keep, side, spare or [])
        began = _clock()
        raised, results = self._results(numbers, outs, way)
        seconds = _clock() - began
        if raised:
            return {"raised": raised, "seconds": seconds}, []
        return self._described(results, keep, seconds)

    def _called_on_gpu(self, numbers: dict, outs: list[str], way: str, keep: int, side: bool, spare: list[int]) -> tuple[dict, list]:
        """`call` on a GPU.  Results are read by the stream of the call first, then again when the device is idle: they are to be alike."""
        self._poison(spare)
        _synchronize()
        raised: dict[str, Any] | None = None
        results: list[Any] = []
        first, lost = None, ""
        began = _clock()
        try:
            if side:
                stream, other = torch.cuda.Stream(), torch.cuda.Stream()
                for buffer in self.buffers.values():  # what a kernel reads that does not wait
                    _fill(buffer, 0)
                _synchronize()
                with torch.cuda.stream(stream):
                    if _sleep is not None:
                        _sleep(20_000_000)
                    for name, buffer in self.buffers.items():
                        _copy(buffer, self.sources[name])
                    busy = torch.cuda.Event()
                    busy.record(stream)
                    self._occupy(other, busy)
                    raised, results = self._results(numbers, outs, way)
                    first = None if raised else [_bytes(y) if _plain(y) else b"" for y in results]
            else:
                raised, results = self._results(numbers, outs, way)
                first = None if raised else [_bytes(y) if _plain(y) else b"" for y in results]
            _synchronize()
        except Exception as error:  # reading a result is the first to be told that the context is lost
            raised, lost = _failed(error)
        seconds = _clock() - began
        if lost:
            return {"lost": lost, "raised": raised, "seconds": seconds}, []
        if raised:
            return {"raised": raised, "seconds": seconds, "hungry": _hungry()}, []
        said, blobs = self._described(results, keep, seconds)
        said["late"] = [k for k, (a, b) in enumerate(zip(first or [], blobs, strict=False)) if a != b]
        return said, blobs

    @staticmethod
    def _occupy(other: Any, after: Any) -> None:
        """Keep all multiprocessors busy for some milliseconds, from `after` on: work that nobody waits for is not done when it is read."""
        with torch.cuda.stream(other):
            other.wait_event(after)
            a = torch.empty(4096, 4096, device="cuda", dtype=torch.float32).fill_(1.0)
            for _ in range(4):
                torch.mm(a, a)

    def _poison(self, spare: list[int]) -> None:
        """Fill blocks of these sizes with the pattern, and give them back: fresh tensors get them."""
        blocks = [_empty(max(1, n), dtype=torch.uint8, device="cuda") for n in spare for _ in range(2)]
        for b in blocks:
            _fill(b, self.pattern)

    def _results(self, numbers: dict[str, Any], outs: list[str], way: str) -> tuple[dict[str, Any] | None, list[Any]]:
        """What the candidate gives, or the error that it raises."""
        assert self.candidate is not None
        given = {**{n: self.tensors[n] for n in self.places if n not in outs}, **numbers}
        try:
            return None, self.candidate(given, [self.tensors[n] for n in outs], way)
        except BaseException as error:
            return described(error), []

    def _described(self, results: list[Any], keep: int, seconds: float) -> tuple[dict, list]:
        """Results as messages have them."""
        said: list[dict[str, Any]] = []
        blobs: list[bytes] = []
        for y in results:
            if not _plain(y):
                said.append(_looks(y))
                blobs.append(b"")
                continue
            said.append(_looks(_detach(y)))
            blobs.append(_bytes(y))
        self.kept[keep] = results
        return {"results": said, "seconds": seconds}, blobs

    def read(self, keep: int, wait: float = 0.0) -> tuple[dict, list]:
        """The bytes of results that were kept, now."""
        if wait:
            time.sleep(wait)
        if self.device == "cuda":
            _synchronize()
        return {}, [_bytes(_detach(y)) if _plain(y) else b"" for y in self.kept[keep]]

    def operators(self, numbers: dict[str, Any], outs: list[str], way: str) -> tuple[dict, list]:
        """Which of torch's operators a call goes through, with how often."""
        counting = Counting()
        with counting:
            raised, _ = self._results(numbers, outs, way)
        counts = counting.counts
        if not counts:  # it may compute in a thread of its own, where the mode is not
            for name, count in self._elsewhere(numbers, outs, way).items():
                counts[name] = counts.get(name, 0) + count
        return {"counts": counts, "raised": raised}, []

    def _elsewhere(self, numbers: dict[str, Any], outs: list[str], way: str) -> dict[str, int]:
        """The operators that compute in other threads, of one more call, by the profiler; none where this torch has no profiler of all."""
        try:
            from torch._C._profiler import _ExperimentalConfig

            config = _ExperimentalConfig(profile_all_threads=True)
        except (ImportError, TypeError):
            return {}
        kinds = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=kinds, experimental_config=config) as profile, torch.profiler.record_function("kgen"):
            self._results(numbers, outs, way)
        events = profile.events() or []
        own = {e.thread for e in events if e.name == "kgen"}
        names = [e.name.removeprefix("aten::") for e in events if e.name.startswith("aten::") and e.thread not in own]
        return {name: names.count(name) for name in set(names) - MOVES}

    # More elements than 32 bits count

    def tall(
        self, numbers: dict[str, Any], outs: list[str], way: str, repeated: list[str], elements: int, spare: list[int]
    ) -> tuple[dict, list]:
        """Call the candidate on tensors whose first dim is repeated until the largest has so many elements, or half as many where there is
        no room: its results but for their elements, and how often, or what it raises.  `spare` are bytes of results before that."""
        self._take_turn()
        largest, rooms = max(self.tensors[n].numel() for n in repeated), (elements, elements // 2)
        each = sum(spare) + sum(self.tensors[n].numel() * self.tensors[n].element_size() for n in repeated)
        free = torch.cuda.mem_get_info()[0] if self.device == "cuda" else os.sysconf("SC_AVPHYS_PAGES") * PAGE
        times = next((count for n in rooms if each * (count := n // largest + 1) < 0.6 * free), 0)
        if not times or self.turn is None:
            return self._end_of_turn({"no room": "other processes fill the memory" if times else "too little memory is free"})
        own, raised, lost = self.tensors, None, ""
        try:
            self.tensors = own | {n: self._repeated(own[n], times) for n in repeated}
            for n in spare:
                _fill(_empty(n * times, dtype=torch.uint8, device=self.device), self.pattern)
            wait = _synchronize if self.device == "cuda" else lambda: None
            wait()
            raised, results = self._results(numbers, outs, way)
            wait()
            self.kept[0] = results
        except Exception as error:
            raised, lost = _failed(error)
        self.tensors = own
        if raised:
            return self._end_of_turn({"raised": raised} | ({"lost": lost} if lost else {}))
        return {"results": [_looks(_detach(y) if _plain(y) else y) for y in results], "times": times}, []

    def rows(self, at: list[int], count: int) -> tuple[dict, list]:
        """So many rows from each of these places on, of each result of `tall`, whose memory is given back."""
        blobs = [_bytes(y[a : a + count]) for a in at for y in self.kept[0]]
        self._end_of_turn({})
        return {}, blobs

    def _repeated(self, x: Any, times: int) -> Any:
        """A tensor whose first dim is repeated so often."""
        made = _empty((times, *x.shape), dtype=x.dtype, device=self.device)
        _copy(made, x)
        return _view(made, (times * x.shape[0], *x.shape[1:]))

    def _take_turn(self) -> None:
        """Wait until no other candidate's process fills the GPU's memory; `turn` is None where that takes too long."""
        import fcntl

        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
        where = getattr(torch.cuda.get_device_properties(0), "uuid", "") if self.device == "cuda" else "cpu"
        file = open(os.path.join(tempfile.gettempdir(), f"kgen-verify-{os.getuid()}-{where}.turn"), "w")  # noqa: SIM115  closed at its end
        end = time.monotonic() + TURN
        while True:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.turn = file
                return
            if time.monotonic() > end:
                return file.close()
            time.sleep(0.05)

    def _end_of_turn(self, answer: dict[str, Any]) -> tuple[dict, list]:
        """Give back the memory of `tall`, and let others have their turn; the answer."""
        self.kept.clear()
        gc.collect()
        if self.device == "cuda":
            with contextlib.suppress(Exception):  # where the context is lost, so is its memory
                torch.cuda.empty_cache()
        if self.turn is not None:
            self.turn.close()
            self.turn = None
        return answer, []

    # CUDA graphs

    def capture(self, numbers: dict[str, Any], outs: list[str], way: str, keep: int) -> tuple[dict, list]:
        """Record a call in a CUDA graph, after a few calls outside of it; why it cannot be recorded."""
        try:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self._raising(numbers, outs, way)
            torch.cuda.current_stream().wait_stream(stream)
            _synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                results = self._raising(numbers, outs, way)
            self.graph = graph, results
            return {}, []
        except BaseException as error:
            with contextlib.suppress(BaseException):
                _synchronize()
            return {"raised": described(error)}, []

    def replay(self, keep: int) -> tuple[dict, list]:
        """Replay the graph that was recorded: its results."""
        graph, results = self.graph
        began = _clock()
        try:
            for y in results:
                if _plain(y) and y.is_contiguous() and y.numel() and not any(y.data_ptr() == t.data_ptr() for t in self.tensors.values()):
                    _fill(_elements(y), self.pattern)
            graph.replay()
            _synchronize()
        except BaseException as error:
            raised, lost = _failed(error)
            return {"raised": raised, "seconds": _clock() - began} | ({"lost": lost} if lost else {}), []
        return self._described(results, keep, _clock() - began)

    def _raising(self, numbers: dict[str, Any], outs: list[str], way: str) -> list[Any]:
        """The candidate's results; raises what it raises."""
        assert self.candidate is not None
        given = {**{n: self.tensors[n] for n in self.places if n not in outs}, **numbers}
        return self.candidate(given, [self.tensors[n] for n in outs], way)

    def time(self, **asked: Any) -> tuple[dict, list]:
        """Time the candidate; see `kgen.verify.timed`."""
        from kgen.verify import timed  # whose own names are bound by `load`, before the candidate's code runs

        assert self.candidate is not None
        return timed.measure(self.candidate, self.device, **asked), []

    def clock(self, reference: str, numbers: dict[str, Any]) -> tuple[dict, list]:
        """The milliseconds of a call on the tensors that were placed, and of a definition's `reference` on them (None: it fails)."""
        assert self.candidate is not None
        way = "destination" if self.candidate.destination else "fresh"
        outs = [n for n in self.places if n.startswith("out ")]
        own = self._milliseconds(lambda: self._raising(numbers, outs, way))
        theirs = None
        with contextlib.suppress(Exception):
            names: dict[str, Any] = {}
            exec(compile(reference, "<reference>", "exec"), names)
            given = [t for n, t in self.tensors.items() if n not in outs] + list(numbers.values())
            theirs = self._milliseconds(lambda: names["run"](*given))
        return {"ms": own, "reference": theirs}, []

    def _milliseconds(self, run: Any) -> float:
        """The median of some rounds, the device idle before and after each."""
        times, wait = [], _synchronize if self.device == "cuda" else lambda: None
        for k in range(13):
            wait()
            began = _clock()
            run()
            wait()
            if k > 2:
                times.append((_clock() - began) * 1e3)
        return sorted(times)[len(times) // 2]


def _hungry() -> bool:
    """Whether this process has half of the GPU's memory itself."""
    with contextlib.suppress(Exception):
        return torch.cuda.max_memory_reserved() > torch.cuda.mem_get_info()[1] // 2
    return False


def _failed(error: BaseException) -> tuple[dict[str, Any], str]:
    """What an error on a GPU is: as plain data, and how the context was lost ("": the device still answers, a launch was refused)."""
    try:
        _synchronize()
    except Exception:
        return described(error), str(error)[:500]
    return described(error), ""


def _elements(y: Any) -> Any:
    """The bytes of a contiguous tensor, also of one without dims, as a tensor."""
    return _view(_reshape(_detach(y), (-1,)), torch.uint8)


def _looks(y: Any) -> dict[str, Any]:
    """A result as messages have it, but for its elements."""
    if not _plain(y):
        return {"type": f"{type(y).__module__}.{type(y).__qualname__}"}
    return {
        "type": "", "dtype": str(y.dtype).removeprefix("torch."), "shape": list(y.shape), "stride": list(y.stride()),
        "device": y.device.type, "at": _data_ptr(y) if y.numel() else 0,
    }  # fmt: skip


def _plain(y: Any) -> bool:
    """Whether a result is a plain tensor: a subclass may answer questions of its own."""
    return type(y) in (torch.Tensor, torch.nn.Parameter) and y.layout is torch.strided and not _is_complex(y)


def _bytes(y: Any) -> bytes:
    """The elements of a tensor, in order; from a GPU by the current stream."""
    y = _contiguous(_cpu(_detach(y)))
    return _string_at(_data_ptr(y), y.numel() * y.element_size()) if y.numel() else b""


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _protect(address: int, length: int, how: int) -> None:
    """Open (3: reading and writing) or close (0) pages."""
    _libc().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(length), how)


def _perturb(pattern: int) -> None:
    """Have glibc fill memory that it gives with a byte, and memory that it takes back with its complement."""
    libc = _libc()
    if sys.platform == "linux" and hasattr(libc, "mallopt"):
        libc.mallopt(PERTURB, 0x100 | ~pattern & 0xFF)  # whose low byte counts, and which is not 0: that would switch it off


def _limit(limit: int) -> None:
    """Limit the memory of this process to so many bytes more than it has."""
    with contextlib.suppress(Exception):
        import resource

        with open("/proc/self/status") as file:
            data = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData"))
        resource.setrlimit(resource.RLIMIT_DATA, (data + limit, data + limit))
