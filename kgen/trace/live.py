"""What a method reads of its object: tensors and floats become parameters, everything else is known while the method is read.

In: an object, and the dtypes that the call's variables stand for.  Out: `Lives`, which says what was read of it, whether another object
(or the same one, later) has the same there, and what its tensors and numbers are.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from kgen.types import TORCH

#: What is taken as it is, and has to be the same for a kernel to be used again.
_PLAIN = (bool, int, str, type(None), tuple, list)


@dataclass(frozen=True, eq=False)
class Owner:
    """An object whose attributes are read, and how it is reached from the method's own ("" is that one)."""

    value: Any
    path: str


@dataclass(frozen=True)
class Live:
    """A parameter made of an attribute: its name, its dtype in the spec, of a tensor the number of its axes, and which are of size one."""

    name: str
    dtype: str
    rank: int | None
    ones: tuple[int, ...] = ()


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def ones(tensor: Any) -> tuple[int, ...]:
    """The axes of a tensor that have one element."""
    return tuple(k for k, size in enumerate(tensor.shape) if size == 1)


@dataclass
class Lives:
    """What is read of an object; `dtypes` has the dtype of each variable of the call."""

    owner: Any
    dtypes: dict[str, Any]
    params: dict[str, Live] = field(default_factory=dict)  # by path
    constants: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, type] = field(default_factory=dict)  # of the objects on the way

    def anew(self) -> Lives:
        """Nothing read yet: the method is read from its start."""
        self.params, self.constants, self.kinds = {}, {}, {}
        return self

    def at(self, owner: Any, path: str) -> Any:
        """The attribute of an object at a path.  Raises `AttributeError` where there is none."""
        for name in path.split("."):
            owner = getattr(owner, name)
        return owner

    def read(self, path: str, value: Any) -> None:
        """Note an attribute that is no parameter."""
        if isinstance(value, _PLAIN):
            self.constants[path] = value
        else:
            self.kinds[path] = type(value)

    def dtype(self, tensor: Any) -> str:
        """The name of a tensor's dtype in the spec: the variable that has it, else its own."""
        return next((v for v, d in self.dtypes.items() if d == tensor.dtype), TORCH[str(tensor.dtype).removeprefix("torch.")].name)

    def fits(self, owner: Any, dtypes: dict[str, Any]) -> bool:
        """Whether the kernel that was made of these is that of another object, or of other dtypes."""
        try:
            if not all(self._same(live, self.at(owner, path), dtypes) for path, live in self.params.items()):
                return False
            same = all(type(self.at(owner, path)) is type(c) and self.at(owner, path) == c for path, c in self.constants.items())
            return same and all(type(self.at(owner, path)) is kind for path, kind in self.kinds.items())
        except AttributeError:
            return False

    def _same(self, live: Live, value: Any, dtypes: dict[str, Any]) -> bool:
        """Whether an attribute is such a parameter."""
        if live.rank is None or not is_tensor(value):
            return live.rank is None and isinstance(value, float)
        if value.dim() != live.rank or ones(value) != live.ones:
            return False
        known = TORCH.get(str(value.dtype).removeprefix("torch."))
        return value.dtype == dtypes[live.dtype] if live.dtype in dtypes else known is not None and known.name == live.dtype

    def values(self, owner: Any) -> dict[str, Any]:
        """The arguments that an object's attributes are, by name."""
        return {live.name: self.at(owner, path) for path, live in self.params.items()}
