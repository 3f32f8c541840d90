"""Seeds that a call leaves out, drawn from torch's generator, and those that it gives as ints.

In: a call's arguments.  Out: the same with a 0-d i64 tensor for each seed that is missing, None or an int, on the tensors' device.  It is
torch that draws them, so `torch.manual_seed` makes them reproducible, `fork_rng` and activation checkpointing bring them back, a CUDA
graph draws new ones in each replay, and torch.compile and vmap see an operator that they know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kgen.errors import KgenError


def seeded(drawn: tuple[tuple[int, str], ...], args: tuple, kwargs: dict[str, Any], lists: bool = False) -> tuple[tuple, dict[str, Any]]:
    """The arguments with the seeds in `drawn` (places and names); with `lists` of a call over lists, a seed for each tuple of tensors.
    Raises `KgenError` for an int of more than 64 bits."""
    import torch

    given = [(k, name, args[k] if k < len(args) else kwargs.get(name)) for k, name in drawn]
    missing = [(k, name, x) for k, name, x in given if x is None or isinstance(x, int)]
    if not missing:
        return args, kwargs
    if lists:
        args = tuple([list(x) if _is_list(x) else x for x in args])
    kwargs = {name: list(x) if lists and _is_list(x) else x for name, x in kwargs.items()}
    first = next(_tensors((*args, *kwargs.values())), None)
    device = None if first is None else first.device
    count = next((len(x) for x in (*args, *kwargs.values()) if isinstance(x, list)), 0) if lists else 0
    for k, name, x in missing:  # 64 bits each; torch has no integer above the greatest
        if x is not None and not -(2**63) <= x < 2**64:
            raise KgenError(f"{name} is {x}, which has more than 64 bits")
        if x is None:
            made = torch.randint(-(2**63), 2**63 - 1, (count,) if count else (), dtype=torch.int64, device=device)
        else:
            made = torch.full((), (x + 2**63) % 2**64 - 2**63, dtype=torch.int64, device=device)
        seed: Any = list(made.unbind()) if made.dim() else made
        if k < len(args):
            args = (*args[:k], seed, *args[k + 1 :])
        else:
            kwargs[name] = seed
    return args, kwargs


def _is_list(x: Any) -> bool:
    """Whether an argument of a call over lists is one."""
    return hasattr(x, "__iter__") and not hasattr(x, "dtype")


def _tensors(arguments: tuple) -> Iterator[Any]:
    """The tensors among arguments, and in lists among them."""
    import torch

    for x in arguments:
        if isinstance(x, torch.Tensor):
            yield x
        elif isinstance(x, (list, tuple)):
            yield from (t for t in x if isinstance(t, torch.Tensor))
