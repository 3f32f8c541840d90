"""The order of keys on the device, by torch's own stable sort.

In: the keys, and tensors for what is asked for of their order.  Out: those, written.
"""

from __future__ import annotations

from typing import Any


def sort(keys: Any, written: dict[str, Any], axis: int | None, count: int) -> None:
    """Write the positions of `keys`, which count up to `count`, in their order ("order"), and where each key begins ("begin") and ends
    ("end") in it; with an `axis` those of each row's own keys, which lie along it, and the keys in that order ("keys").

    Keys below 0, or not below `count`, belong nowhere: they stand behind all others.
    """
    import torch

    if axis is not None:
        ordered, order = ordered_keys(keys.movedim(axis, -1), count)
        for part, found in (("order", order), ("keys", ordered)):
            written[part].copy_(found)
        return
    ordered, order = ordered_keys(keys, count)
    places = torch.arange(count + 1, dtype=ordered.dtype, device=keys.device)
    edges = torch.searchsorted(ordered, places)
    for part, found in (("order", order), ("begin", edges[:-1]), ("end", edges[1:])):
        if part in written:
            written[part].copy_(found)


def ordered_keys(keys: Any, count: int) -> tuple[Any, Any]:
    """Keys in their order along their last dim, those outside as `count`, and the positions that they come from."""
    import torch

    keys = torch.where((keys < 0) | (keys >= count), count, keys)
    narrow = next((dtype for dtype in (torch.uint8, torch.int16, torch.int32) if count <= torch.iinfo(dtype).max), keys.dtype)
    return torch.sort(keys.to(narrow), dim=-1, stable=True)  # a radix sort goes over all bits of a dtype
