"""`Kernel`: a checked spec that runs.

In: a spec.  Out: an object that is called with torch tensors and returns the results that are not primed.
"""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import os
import types
import warnings
import weakref
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from kgen import hooks
from kgen.errors import KgenError, Source, expect, printed
from kgen.runtime import drawn
from kgen.types import ELLIPSIS, Binding

if TYPE_CHECKING:  # what reads and writes specs is imported when it is needed: a first call that is recalled needs none of it
    from kgen import check as checker

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")


def _checked(text: str, name: str) -> checker.Kernel:
    from kgen import check, syntax

    return check.check(syntax.parse(text, name))


def read_spec(spec: str | Path) -> tuple[str, str]:
    """The text of a spec file, and the name that errors give it; a bare name (`gelu`, `kernelbench/26_gelu`) finds the bundled spec.

    Raises `KgenError` where the file is missing, unreadable, too long or not UTF-8.
    """
    from kgen import syntax
    from kgen.resources import bundled, families
    from kgen.values import closest, did_you_mean

    expect(spec, (str, os.PathLike), "a spec is a path or a bundled spec's name", "`kgen.loads` takes a spec's text")
    path, shown = Path(spec), printed(str(spec), "")
    free = not os.path.exists(path) or os.path.isdir(path)  # a folder is no spec, and may well have a kernel's name
    if free and not path.suffix and not path.is_absolute() and ".." not in path.parts and (own := bundled(path.as_posix())):
        return own.read_text(encoding="utf-8"), f"{path}.k"
    try:
        if path.is_dir():
            raise KgenError(f"{shown} is a folder, not a spec")
        with path.open("rb") as file:
            data = file.read(syntax.MAX_BYTES + 1)
    except OSError as error:
        known = bundled(path.name.removesuffix(".k"))
        help = f"`{known.stem}` is a bundled spec" if known else ""
        if isinstance(error, FileNotFoundError) and not known and not path.suffix:
            like = did_you_mean(closest(path.name, [file.stem for files in families().values() for file in files]))
            help = f"no bundled spec has this name either; {like or '`kgen list` has them'}"
        raise KgenError(f"cannot read {shown}: {(error.strerror or 'error').lower()}", help=help) from None
    except ValueError as error:
        raise KgenError(f"cannot read {str(spec)!r}: {error}") from None
    if path.suffix == ".py":
        raise KgenError(f"{shown} is Python, and no spec", help="`to_spec()` of a decorated function is the text of a spec")
    if len(data) > syntax.MAX_BYTES:
        raise KgenError(f"{shown} is longer than {syntax.MAX_BYTES:,} bytes", help="one file holds one kernel")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n"), str(spec)
    except UnicodeDecodeError as error:
        raise KgenError(f"{shown} is not UTF-8 (byte {error.start})", Source(str(spec), "")) from None


def _uncollected(make: Callable[P, R]) -> Callable[P, R]:
    """A function that makes what stays, during which Python's collector rests: with torch loaded a full collection, which so many new
    objects would bring on, takes as long as making a kernel."""

    @functools.wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> R:
        if not gc.isenabled():
            return make(*args, **kwargs)
        gc.disable()
        try:
            return make(*args, **kwargs)
        finally:
            gc.enable()

    return made


@_uncollected
def load(spec: str | Path, checked: bool = False) -> Kernel:
    """The kernel of a spec file, or of a bundled spec by its bare name; `checked` as for `loads`.  Raises `KgenError` with all its
    errors."""
    return loads(*read_spec(spec), checked=checked)


@_uncollected
def loads(text: str, name: str = "<text>", checked: bool = False) -> Kernel:
    """The kernel of a spec's text; `name` is what errors call it.  Calls of a `checked` one raise an `IndexError` where a lookup lies
    outside, when their results are made.  Raises `KgenError` with all its errors."""
    from kgen.runtime import recall

    expect(text, str, "a spec's text is a str", "`kgen.load` reads a file")
    head = recall.head(text, name) if recall.possible() else None
    made = Kernel(_checked(text, name)) if head is None else Kernel._of(head)
    made._text = text, name
    if checked:
        from kgen.runtime.checked import Checked

        return cast("Kernel", Checked(made))
    return made


@overload
def kernel(function: Callable[P, R]) -> Decorated[P, R]: ...
@overload
def kernel(*, where: str) -> Callable[[Callable[P, R]], Decorated[P, R]]: ...
def kernel(function: Any = None, *, where: str = "") -> Any:
    """A kernel from a Python function, as a decorator: `kgen.trace` says what it may hold.  `where` has what a spec's header says of sizes
    that follow from others: `@kgen.kernel(where="P = (M + 127) // 128 * 128")`.

    A method, whose first parameter is `self`, is read at its first call (`kgen.runtime.methods`).  The kernel keeps the function's
    name, documentation and signature; the function itself is its `__wrapped__`.  Raises `KgenError` with all errors, each at its
    Python line.
    """
    from kgen.trace import trace

    if function is None:
        return functools.partial(kernel, where=where)
    if not callable(getattr(function, "__func__", function)):
        raise KgenError(f"@kgen.kernel decorates a function, not {function!r}", help="write `@kgen.kernel` above its `def`")
    plain: Any = getattr(function, "__func__", function)  # of a static method
    made: Any
    from kgen.runtime.methods import is_method, method

    if isinstance(plain, types.FunctionType) and is_method(plain):
        made = method(plain, Kernel, where)
        return made
    made = Kernel(trace(plain, where=where))
    functools.update_wrapper(made, plain, updated=())
    made.__signature__ = inspect.signature(plain)
    return made


#: The default target on a GPU: of kernels that reduce or do not, from so many elements of the largest tensor on; the last that fits.
#: CUDA keeps longer rows on the chip, and was as fast as Triton in every map measured, with the sooner first call.
PREFERRED: tuple[tuple[bool, int, str], ...] = ((True, 0, "cuda"), (False, 0, "cuda"))

#: Every kernel of this process by its `_key`: torch.compile follows a text where it does not follow an object.
KERNELS: weakref.WeakValueDictionary[str, Kernel] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def _known(made: Kernel) -> str:
    """A key of the kernel's own, under which KERNELS has it."""
    key = f"{made.name} {next(_numbers)}"
    KERNELS[key] = made
    return key


class _Signature:
    """`inspect.signature` of a kernel: its parameters with their types and defaults, as its header has them."""

    def __get__(self, kernel: Kernel | None, owner: type) -> inspect.Signature:
        if kernel is None:
            raise AttributeError("__signature__")
        from kgen.runtime.arguments import signature

        return signature(kernel.kernel)


class Kernel:
    """A kernel: `kernel(x, ...)` runs it, `source` and `program` show it.

    Arguments are the spec's parameters, by position or name: tensors of the declared dtypes and dims (any strides; all on
    one device), Python numbers for `float` and `int`.  `out=` takes the results (a tensor, or a tuple of them) instead of
    new ones; `target=` chooses among "triton" and "cuda" on CUDA tensors, "cpp" and "torch" (operator by operator) on
    others; a parameter of either name takes that keyword for itself.
    A tensor with a default may be left out, or be None.  Returns the results that are not primed: one tensor, a tuple, or None.
    """

    #: `_fast` is where `kgen.runtime.fast` keeps what calls left; a slot, which C finds at once.
    __slots__ = ("__dict__", "__weakref__", "_fast")

    def __init__(self, kernel: checker.Kernel):
        self.kernel = kernel
        self.name = self.__name__ = kernel.name
        self.doc = self.__doc__ = "\n\n".join(part for part in (kernel.doc, kernel.signature()) if part)
        self._launchers: dict[str, Any] = {}
        self._names = frozenset(p.name for p in kernel.params)  # torch.compile reads it: no cached property
        self._optional = tuple((k, p.name) for k, p in enumerate(kernel.params) if p.optional)
        self._drawn = tuple((k, p.name) for k, p in enumerate(kernel.params) if p.drawn)
        self._key = _known(self)
        if kernel.joined:
            from kgen.check import plain

            self._plain = Kernel(plain(kernel))

    #: The kernel whose tensors have an axis for each dim, where this one's have not (`kgen.runtime.joined`).
    _plain: Kernel | None = None
    __signature__: Any = _Signature()
    #: The tensors that a call may leave out, each with its place; the kernels of calls without some of them.
    _optional: tuple[tuple[int, str], ...] = ()
    _variants: dict[tuple[str, ...], Kernel] | None = None
    #: The seeds that a call may leave to torch's generator, each with its place.
    _drawn: tuple[tuple[int, str], ...] = ()
    #: The text and its name, of a kernel that was loaded; how many calls of it were kept for other processes.
    _text: tuple[str, str] | None = None
    _recipes = 0
    _head: dict[str, Any] | None = None

    @classmethod
    def _of(cls, head: dict[str, Any]) -> Kernel:
        """The kernel of a text that was checked in another process; `kgen.runtime.recall` says what is known of it."""
        made = cls.__new__(cls)
        made._head, made._launchers = head, {}
        made.name = made.__name__ = head["name"]
        made.doc = made.__doc__ = head["doc"]
        made._names = frozenset(name for name, _ in head["params"])
        made._optional = tuple((k, name) for k, name in head["optional"])
        made._drawn = tuple((k, name) for k, name in head["drawn"])
        made._key = _known(made)
        return made

    @cached_property
    def kernel(self) -> checker.Kernel:
        assert self._text is not None
        return _checked(*self._text)

    @cached_property
    @_uncollected
    def _calls(self) -> Any:
        """The keyed calls; its module imports torch."""
        from kgen.runtime.calls import Calls

        return Calls(self)

    @cached_property
    def _foreach(self) -> Any:
        """The calls over lists; their module imports torch."""
        from kgen.runtime.foreach import Foreach

        return Foreach(self)

    @cached_property
    def _parts(self) -> Any:
        """The kernel over the parts of its tensors (`runnable`, and `parted`), where there is one."""
        from kgen.places import taken_apart

        if not taken_apart(self.kernel):  # most have none, and need not load what makes them
            return None
        from kgen.parts import parted

        made = parted(self.kernel)
        return None if made is None else types.SimpleNamespace(runnable=Kernel(made.kernel), parted=made)

    @cached_property
    def _reduces(self) -> bool:
        return self.kernel.reduces or any(v.op in ("pick", "place") for v in self.kernel.values)

    @cached_property
    def _alone(self) -> bool:
        """Whether one pass reads, of what a result's element overwrites, that element alone."""
        from kgen.ops import SCANS

        if not self._reduces and not any(v.op in SCANS for v in self.kernel.values):  # then results of other dims have passes of their own
            return len({frozenset(r.dims) for r in self.kernel.results}) == 1
        from kgen import pipeline
        from kgen.ir import GATHERS

        plan = pipeline.plan(self.kernel, self.kernel.bindings()[0])
        return len(plan.passes) == 1 and not any(let.expr.name in GATHERS for let in plan.program.lets)

    @property
    def _mapped(self) -> bool:
        """Whether the kernel is one pass that computes each element alone."""
        from kgen import pipeline
        from kgen.passes import Map

        passes = pipeline.plan(self.kernel, self.kernel.bindings()[0]).passes
        return len(passes) == 1 and isinstance(passes[0], Map)

    def __getstate__(self) -> dict[str, Any]:
        own = ("_calls", "_foreach", "_traits", "_variants", "_wholes")  # of this process
        kept = {name: value for name, value in self.__dict__.items() if name not in own}
        kept.pop("__wrapped__", None)  # a decorated function's name finds the kernel, not the function
        return {**kept, "_launchers": {}}  # what is loaded stays in this process

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._key = _known(self)

    def without(self, *names: str) -> Kernel:
        """The kernel of calls that leave these tensors out: `layernorm.without("w", "b")(x)` is `layernorm(x)`, which finds it by itself.

        Raises `KgenError` where one has no default, or where what stands for it does not fit the formula."""
        absent = tuple(name for _, name in self._optional if name in names)
        variants = self._variants if self._variants is not None else {}
        if not names or absent in variants and len(absent) == len({*names}):
            return variants[absent] if names else self
        from kgen import check

        made = Kernel(check.left_out(self.kernel, names))
        self._variants = {**variants, absent: made}  # as a whole: other threads may be calling
        return made

    def _absent(self, args: tuple, kwargs: dict[str, Any]) -> tuple[str, ...]:
        """The tensors that a call leaves out, or gives as None."""
        if len(args) > len(self._names):
            return ()
        return tuple([name for k, name in self._optional if (args[k] if k < len(args) else kwargs.get(name)) is None])

    def _present(self, absent: tuple[str, ...], args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The arguments of a call but for those that it leaves out."""
        gone = [k for k, name in self._optional if name in absent]
        return tuple([a for k, a in enumerate(args) if k not in gone]), {n: x for n, x in kwargs.items() if n not in absent}

    def __copy__(self) -> Kernel:
        return self  # nothing about a kernel changes

    def __deepcopy__(self, memo: dict[int, Any]) -> Kernel:
        return self  # so that the copies of a model's layers share what was built and traced

    @property
    def op(self) -> Any:
        """The kernel as a registered PyTorch operator, `torch.ops.kgen.<name>_<hash of the spec>.default`.

        Registered when first asked for (a call under torch.compile or torch.export asks too); a program that was exported and saved
        runs where its kernels' operators are registered.
        """
        return hooks.operator(self._plain or self)

    def module(self, names: dict[str, str] | None = None, like: Any = None, device: Any = None, dtype: Any = None, **values: Any) -> Any:
        """The kernel as an `nn.Module`: `layernorm.module(w=torch.ones(64), b=torch.zeros(64), eps=1e-5)`.

        `values` are parameters of the spec that the module has itself: float tensors become its parameters, integer ones its buffers,
        numbers are fixed.  The others are `forward`'s arguments, in order.  `names` says what the tensors are called in it and its state
        dict (`{"w": "weight"}`).  `like` takes all that from another module, whose parameters it then shares: `like=nn.LayerNorm(64)`
        gives a layer to put in its place.  `device` and `dtype` move the tensors.  Raises `KgenError` where a name, a tensor's rank
        or its sizes do not fit the spec.
        """
        return hooks.module(self, values, names, like, device, dtype)

    def __repr__(self) -> str:
        return f"<kgen kernel {self.kernel.signature()}>"

    @property
    def signature(self) -> str:
        return self.kernel.signature()

    def source(self, target: str, lists: bool = False) -> str:
        """The source for a target ("triton", "cuda" or "cpp"), for every dtype: what `kgen compile` writes and what runs (in C++, with
        the entries for the call's dtypes alone).  With `lists`, what `foreach` launches for many tensors at once; raises `KgenError`
        where that is a launch for each of them."""
        from kgen.backends import backend

        chosen: Any = backend(target)
        if lists and not (hasattr(chosen, "listed") and self._mapped):
            raise KgenError(f"{self.name}: {target} launches once for each tensor of a list", help="cuda and cpp launch maps at once")
        return (chosen.listed if lists else chosen).render(self.kernel)

    def program(self, binding: Binding | None = None) -> str:
        """The typed program, after its rules, for a choice of the dtype variables (f32 where none is given)."""
        from kgen import pipeline

        return str(pipeline.program(self.kernel, binding or pipeline.usual(self.kernel)))

    def show(
        self, stage: str = "program", target: str = "triton", dtypes: dict[str, str] | None = None, arch: str = "sm_90",
        backward: bool = False,
    ) -> str:  # fmt: skip
        """The kernel (or its backward) at a stage on its way, as `kgen show` prints it; `dtypes` says what the variables stand for
        ({"T": "bf16"})."""
        return hooks.show(self, stage, target, dtypes or {}, arch, backward)

    def to_spec(self) -> str:
        """The text of the .k file that says the same; the documentation is the comment above."""
        from kgen.trace import to_spec

        return to_spec(self.kernel)

    def check(self, examples: int = 100, target: str | None = None, seed: int = 0, against: Callable[..., Any] | None = None) -> Any:
        """Run random cases against float64 and the derived bound, as `kgen check` does, on every target that runs here (or one).

        `against` is a torch function of the same arguments that the kernel is held against as well; `kgen.testing.check` says
        more of it.  Returns the reports, which print as a table; raises `KgenError` with the failures, the first of them made small.
        """
        return hooks.check(self, against, target=target, examples=examples, seed=seed)

    def _repr_latex_(self) -> str:
        from kgen.mathematics import latex

        return f"$\\displaystyle {latex(self.kernel.file)}$"

    def foreach(self, *args: Any, **kwargs: Any) -> Any:
        """The kernel over lists of tensors, as torch's foreach operators go over theirs: `adamw.foreach(params, grads, ms, vs, t, lr)`.

        Arguments are those of a call, but each tensor is a list (or another iterable) of tensors, all of one length; tensors without dims
        that are only read may be shared, and numbers are, or lists too.  Returns a list for each result that is not primed; `out=` takes
        lists.  The results are those of a call for each tuple of tensors, bit for bit.  A kernel that computes each element alone takes
        one launch for all tensors whose dtypes, layouts and numbers are alike (on "cuda" and "cpp"); others take one for each tensor.

        With `whole` reductions over `...` go over all tensors of the lists, as if these were one: `frobenius.foreach(grads, whole=True)` is
        the norm of all gradients.  Results without dims are tensors then, not lists.  `kgen.whole` says what such a call launches.

        No history is kept: tensors that require grad are refused while grad mode is on.  Under torch.compile it is a graph break.
        Raises `KgenError`, before anything is launched, with the argument and the index in the lists.
        """
        import torch

        if self._drawn:
            args, kwargs = drawn.seeded(self._drawn, args, kwargs, lists=True)
        if self._optional and (absent := self._absent(args, kwargs)):
            given, named = self._present(absent, args, kwargs)
            return self.without(*absent).foreach(*given, **named)
        out = None if "out" in self._names else kwargs.pop("out", None)
        target = None if "target" in self._names else kwargs.pop("target", None)
        if "whole" not in self._names and kwargs.pop("whole", False):
            from kgen.runtime import whole

            return whole.call(self, args, kwargs, out, target)
        if self._plain is not None:
            from kgen.runtime import joined

            return joined.foreach(self, args, kwargs, out, target)
        if torch.compiler.is_compiling():
            from kgen.runtime import uncompiled

            return uncompiled.foreach(self, args, kwargs, out, target)
        from kgen.runtime import foreach

        return foreach.call(self, args, kwargs, out, target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A call like an earlier one does not come here where there is `kgen.runtime.fast`'s extension."""
        import torch

        if self._drawn:
            args, kwargs = drawn.seeded(self._drawn, args, kwargs)
        if self._optional and not torch.compiler.is_compiling() and (absent := self._absent(args, kwargs)):
            given, named = self._present(absent, args, kwargs)
            return self.without(*absent)(*given, **named)
        out = target = None
        if kwargs:
            out = None if "out" in self._names else kwargs.pop("out", None)
            target = None if "target" in self._names else kwargs.pop("target", None)
        if self._plain is not None:
            from kgen.runtime import joined

            return joined.call(self, args, kwargs, out, target)
        if (
            torch.compiler.is_compiling()
            or torch._C._len_torch_dispatch_stack()
            or torch._C._len_torch_function_stack()
            or torch._C._functorch.peek_interpreter_stack() is not None
            or torch._C._is_any_autocast_enabled()
            or torch._C._get_tracing_state() is not None
            or torch.autograd.forward_ad._current_level >= 0
        ):
            return self._special(args, kwargs, out, target)
        if "kernel" not in self.__dict__:
            from kgen.runtime import again

            result = again.first(self, args, kwargs, out, target)
            if result is not NotImplemented:
                return result
        if target == "triton" and "_calls" not in self.__dict__:
            from kgen.runtime.launchers import warm_up_triton

            warm_up_triton()
        return self._general(args, kwargs, out, target) if "_calls" in self.__dict__ else self._first(args, kwargs, out, target)

    def _general(self, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
        if self._calls.special(args, kwargs):
            return self._special(args, kwargs, out, target)
        if (heard := self._calls.heard()) is not None:
            heard.plain = True
        return self._plainly(args, kwargs, out, target)

    _first = _uncollected(_general)  # which makes what launches it

    def _special(self, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
        """A call that is traced or transformed, differentiated, or whose tensors are no plain ones."""
        return hooks.call(self, args, kwargs, out, target)

    def _run(self, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
        """The plain call: the kernel runs now, whatever modes are on.  Raises `KgenError` for tensors that are no plain ones, and for
        those that require grad while grad mode is on."""
        if fast := getattr(self, "_fast", None):
            result = fast.call(args, {**kwargs, "out": out, "target": target} if out is not None or target is not None else kwargs)
            if result is not NotImplemented:
                return result
        return self._plainly(args, kwargs, out, target)

    def _plainly(self, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
        if self._parts is not None:
            from kgen.runtime import parts

            return parts.call(self, args, kwargs, out, target)
        result = self._calls(args, kwargs, out, target)
        return self._bound(args, kwargs, out, target) if result is self._calls.miss else result

    def _bound(self, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
        """A plain call that keeps nothing for later ones."""
        from kgen.runtime.arguments import bind

        call = bind(self.kernel, args, kwargs, out, self._alone)
        launcher = self._chosen(call, target)
        fresh = tuple(call.results[r.name] for r in self.kernel.results if r.state is None)
        if launcher is not None:
            launcher(call)
            self._mark_written(call, () if out is None else fresh)
        return None if not fresh else fresh[0] if len(fresh) == 1 else fresh

    def _chosen(self, call: Any, target: str | None) -> Any:
        """What launches a call; None where it has nothing to compute.  Raises `KgenError` where it cannot."""
        if not any(t.numel() for t in call.results.values()):
            return None
        if self._reduces:
            from kgen.runtime.arguments import refuse_empty

            refuse_empty(self.kernel, call)
        tensors = (*call.results.values(), *(call.given[p.name] for p in self.kernel.params if p.is_tensor))
        return self._launcher(target, call.device, max(t.numel() for t in tensors), call)

    def _mark_written(self, call: Any, out: tuple) -> None:
        """Tell autograd of what was written in place or into `out`, as torch's own operators do."""
        import torch

        torch.autograd.graph.increment_version([*(call.results[r.name] for r in self.kernel.results if r.state is not None), *out])

    def _preferred(self, device: Any, elements: int = 0) -> str:
        """The target that a device's tensors run on by default; `elements` are those of the largest tensor.  On a GPU PREFERRED says
        which, as far as there is NVRTC."""
        if device.type != "cuda":
            return "cpp"
        from kgen.runtime import driver

        chosen = [target for reduces, least, target in PREFERRED if reduces == self._reduces and elements >= least][-1]
        return chosen if chosen != "cuda" or driver.available() else "triton"

    @_uncollected
    def _launcher(self, target: str | None, device: Any, elements: int = 0, call: Any = None) -> Any:
        """What launches on a device (`elements`: of the largest tensor) calls like one.  Raises `KgenError` where the target does not run
        there."""
        from kgen.backends import TARGETS, launcher
        from kgen.runtime import roads

        chosen = target or self._preferred(device, elements)
        runs_on = {name: row.device for name, row in TARGETS.items()}
        if chosen not in (*runs_on, "torch"):
            on = {device: " and ".join(t for t, d in runs_on.items() if d == device) for device in ("cuda", "cpu")}
            help = f"targets are {on['cuda']} (CUDA tensors), {on['cpu']} (CPU tensors), torch (any)"
            raise KgenError(f"{self.name}: there is no target {chosen}", help=help)
        if runs_on.get(chosen, device.type) != device.type:
            raise KgenError(f"{self.name}: the target {chosen} does not run on {device}", help=f"it runs on {runs_on[chosen]} tensors")
        made = self.kernel if call is None else roads.taken(self.kernel, call, chosen)
        own = f"{chosen}, compared" if made.compared else chosen
        if own not in self._launchers:
            from kgen.runtime.launchers import Torch

            try:
                self._launchers[own] = (Torch if chosen == "torch" else launcher(chosen))(made)
            except KgenError as error:
                from kgen.runtime.build import NoCompiler

                if target is not None or not isinstance(error, NoCompiler):
                    raise
                warnings.warn(f"kgen evaluates with torch, operator by operator: {error}", stacklevel=6)
                self._launchers[own] = Torch(made)
        return self._launchers[own]


if TYPE_CHECKING:

    class Decorated(Kernel, Generic[P, R]):
        """What the decorator returns, to type checkers: a kernel that is called as its function is."""

        __wrapped__: Callable[P, R]

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

        @overload
        def __get__(self, owner: None, kind: type | None = None) -> Decorated[P, R]: ...

        @overload
        def __get__(self: Decorated[Concatenate[Any, Q], S], owner: object, kind: type | None = None) -> Callable[Q, S]: ...

        def __get__(self, owner: Any, kind: type | None = None) -> Any: ...


__all__ = ["ELLIPSIS", "Kernel", "kernel", "load", "loads", "read_spec"]
