"""A method as a kernel: what it reads of its object is bound at each call.

In: a method.  Out: a function that a class holds in its place.  It is read at the first call, when there is an object: the object's
tensors and floats are parameters, everything else (integers, bools, modules) is part of the kernel, and a new value of it makes a new one.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgen.runtime.kernel import Kernel

MOST_KERNELS = 64


def is_method(function: types.FunctionType) -> bool:
    """Whether a function's first parameter is `self`, which has no type of a kernel's."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.name == "self" and first.annotation is first.empty and first.default is first.empty


def method(function: types.FunctionType, made_of: Callable[[Any], Kernel], where: str = "") -> Any:
    """A method in whose place a class holds a function that runs kernels; its `kernels` lists those made so far.  `made_of` makes a
    kernel that runs of a checked one; `where` says sizes, as `kgen.kernel` has it."""
    reader = _Reader(function, made_of, where)

    @functools.wraps(function, updated=())
    def run(owner: Any, *args: Any, **kwargs: Any) -> Any:
        return _call(reader, owner, args, kwargs)

    made: Any = run
    made.kernels = reader.kernels
    return made


class _Reader:
    """What has been read of a method, for each kind of object that it was called on."""

    def __init__(self, function: types.FunctionType, made_of: Callable[[Any], Kernel], where: str):
        self.function, self.made_of, self.where = function, made_of, where
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self.variables = [(p.name, _variable(p.annotation)) for p in parameters]
        self.lives: list[Any] = []
        self.kernels: list[Kernel] = []

    def find(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Kernel]:
        """What the method reads of an object, and the kernel for it.  Raises `KgenError` where the method cannot be one."""
        given = {**dict(zip((name for name, _ in self.variables), args, strict=False)), **kwargs}
        dtypes = {v: given[name].dtype for name, v in self.variables if v and hasattr(given.get(name), "dtype")}
        for lives, kernel in zip(self.lives, self.kernels, strict=True):
            if lives.fits(owner, dtypes):
                return lives, kernel
        from kgen.trace import Lives, trace

        lives = Lives(owner, dtypes)
        kernel = self.made_of(trace(self.function, lives, self.where))
        lives.owner = None  # the object may go
        if len(self.kernels) == MOST_KERNELS:
            del self.lives[0], self.kernels[0]
        self.lives.append(lives)
        self.kernels.append(kernel)
        return lives, kernel


def _call(reader: _Reader, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The kernel of the object and these arguments, run."""
    lives, kernel = reader.find(owner, args, kwargs)
    return kernel(*args, **kwargs, **lives.values(owner))


#: To torch.compile a method is a graph break: what it reads of its object is no part of a graph.
vars(_call)["_torchdynamo_disable"] = True


def _variable(annotation: Any) -> str:
    """The dtype variable of an annotation: T of `"T[..., N]"`, and of `Annotated` with that; "" where there is none."""
    texts = [annotation, *getattr(annotation, "__metadata__", ())]
    found = (t.strip() for t in texts if isinstance(t, str))
    return next((t[0] for t in found if t[:1].isupper() and t[1:2] == "["), "")
