"""The order of keys on the device, by torch's own stable sort.

In: the keys, and tensors for what is asked for of their order.  Out: those, written.
"""

from __future__ import annotations

from typing import Any


def sort(keys: Any, written: dict[str, Any]) -> None:
    """Write the positions of `keys` in their order ("order"), and where each key from 0 on begins ("begin") and ends ("end") in it.

    Keys that no place of "begin" or "end" stands for belong nowhere: they stand behind all others.
    """
    import torch

    edge = written.get("begin", written.get("end"))
    assert edge is not None
    count = edge.shape[0]
    if count < 2**31 - 1:  # a radix sort of half the bits
        keys = torch.where((keys < 0) | (keys >= count), count, keys).to(torch.int32)
    else:
        keys = torch.where((keys < 0) | (keys >= count), count, keys)
    ordered, order = torch.sort(keys, stable=True)
    places = torch.arange(count + 1, dtype=keys.dtype, device=keys.device)
    edges = torch.searchsorted(ordered, places)
    for part, found in (("order", order), ("begin", edges[:-1]), ("end", edges[1:])):
        if part in written:
            written[part].copy_(found)


__all__ = ["sort"]
