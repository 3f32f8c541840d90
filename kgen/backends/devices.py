"""What devices have, by compute capability: shared memory, clusters, multiprocessors."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class Limits(NamedTuple):
    """`shared`: bytes of shared memory that a block may have; `cluster`: blocks of a cluster, 0 where there are none."""

    shared: int
    cluster: int


#: KB of shared memory of a block and blocks of a cluster, by compute capability; of others, by the least that they have.
DEVICES = {75: (64, 0), 80: (163, 0), 87: (163, 0), 90: (227, 16), 100: (227, 16), 103: (227, 16), 110: (227, 8)}
OTHERS = {90: (99, 8), 80: (99, 0), 0: (48, 0)}


@cache
def limits(arch: str) -> Limits:
    """The limits of an architecture ("sm_90")."""
    capability = int(arch.removeprefix("sm_").rstrip("af"))
    shared, cluster = DEVICES.get(capability) or next(found for least, found in OTHERS.items() if capability >= least)
    return Limits(shared * 1024, cluster)


#: Multiprocessors by compute capability, of others; and of those with clusters, how many there are for those of a cluster.
PROCESSORS = {75: 40, 80: 108, 86: 84, 89: 128, 90: 132, 100: 148, 103: 148, 120: 170}
OTHER_PROCESSORS = 128
#: Multiprocessors of a part of the chip, beyond which no cluster reaches.
PART = 16


def resident(arch: str, blocks: int, cluster: int) -> int:
    """Blocks (or clusters of so many) that an architecture ("sm_90") has at once, where `blocks` stand on a multiprocessor."""
    processors = PROCESSORS.get(int(arch.removeprefix("sm_").rstrip("af")), OTHER_PROCESSORS)
    if cluster == 1:
        return processors * blocks
    parts = processors // PART
    each = max(1, parts * (PART // cluster) - (cluster > 2))
    return max(1, each * blocks - (cluster == 4 and blocks % 2))  # a part with half of the processors has two such blocks or none
