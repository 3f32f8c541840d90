"""A method as a kernel: what it reads of its object is bound at each call.

In: a method.  Out: a `Method`, which a class holds in its place.  It is read at the first call, when there is an object: the object's
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


class Method:
    """A decorated method; `kernels` has the kernels made so far, `__wrapped__` is the method itself."""

    __signature__: inspect.Signature
    __wrapped__: Callable[..., Any]

    def __init__(self, function: types.FunctionType, made_of: Callable[[Any], Kernel]):
        """`made_of` makes a kernel that runs of a checked one."""
        functools.update_wrapper(self, function, updated=())
        self.__signature__ = inspect.signature(function)
        self.variables = [(p.name, _variable(p.annotation)) for p in list(self.__signature__.parameters.values())[1:]]
        self.made_of = made_of
        self.made: list[tuple[Any, Kernel]] = []

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(kernel for _, kernel in self.made)

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __call__(self, owner: Any, *args: Any, **kwargs: Any) -> Any:
        """The kernel of the object and these arguments, run.  Raises `KgenError` where the method cannot be one."""
        names = [name for name, _ in self.variables]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        dtypes = {v: given[name].dtype for name, v in self.variables if v and hasattr(given.get(name), "dtype")}
        lives, kernel = next(((lives, k) for lives, k in self.made if lives.fits(owner, dtypes)), (None, None))
        if kernel is None or lives is None:
            lives, kernel = self.read(owner, dtypes)
        return kernel(*args, **kwargs, **lives.values(owner))

    def read(self, owner: Any, dtypes: dict[str, Any]) -> tuple[Any, Kernel]:
        """What the method reads of an object, and the kernel that it is for that."""
        from kgen.trace import Lives, trace

        lives = Lives(owner, dtypes)
        kernel = self.made_of(trace(self.__wrapped__, lives))
        lives.owner = None  # the object may go
        self.made = [*self.made, (lives, kernel)][-MOST_KERNELS:]
        return lives, kernel


def _variable(annotation: Any) -> str:
    """The dtype variable of an annotation: T of `"T[..., N]"`, and of `Annotated` with that; "" where there is none."""
    texts = [annotation, *getattr(annotation, "__metadata__", ())]
    found = (t.strip() for t in texts if isinstance(t, str))
    return next((t[0] for t in found if t[:1].isupper() and t[1:2] == "["), "")


__all__ = ["Method"]
