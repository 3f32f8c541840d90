"""How rows that follow one another are shared out on a GPU, as data: as `launches.py` has it for others (printed in C++,
`kgen_rounds_table.cuh`).
"""

from __future__ import annotations

from typing import NamedTuple

from kgen.backends.launches import ANY


class Round(NamedTuple):
    """A rule for rows that follow one another: the first that takes a row holds.

    Blocks of up to `threads`, `blocks` of them on a multiprocessor; `elements` of a thread at most, `stages` rows on their way, or with 1,
    for rows of which there is no room for two, one that takes the place of the row before as that is stored.  `where`:
    "lanes" for teams of up to `team` lanes of a warp, "block" for a block of as many warps as the row needs, "cluster", "segments" of
    `team` threads, a launch for each reading, or "across" for teams of neighbouring rows.  It takes rows of up to `longest` vectors, of
    passes that do not reduce them where it is for `maps`.  `once`: readings are those of rows that do not stay on the chip, fewer where
    blocks wait for one another after each.  `every`: threads compute also from vectors that are not there, where many lack one.  `least`:
    bytes of an element that move along with rows, of passes that it takes.  `parameters`: registers of a thread at most that hold what all
    rows share.  `dear`: as a `Rule`'s."""

    threads: int
    team: int
    elements: int
    blocks: int
    stages: int
    where: str
    longest: int = ANY
    maps: bool = False
    once: bool = False
    every: bool = False
    least: int = 0
    parameters: int = 64
    dear: bool = False


#: Partials of columns that a thread has at most, in registers.
PARTIALS = 64
#: Rows that a team takes at most: sums of more would pass through too many additions.
MOST_ROUNDS = 384
#: The threads of a block of the last launch, and the most of them that add up one column (kgen_rounds.cuh).
FINISH, COLUMN_LANES = 256, 64
#: Behind all others, for rows that nothing else holds, and for many operands.
_LONG = (Round(1024, 1024, 16, 1, 4, "cluster"), Round(256, 256, 8, 2, 4, "segments"), Round(32, 32, 1, 4, 2, "segments"))
#: For maps whose parameters have gradients: what they compute takes more registers than sums along a row.
_MAPS = Round(512, 0, 8, 1, 3, "block", maps=True)
#: By whether elements that move have 16 bits or fewer, and whether there are several sums; from searches on an H200 (2^28 elements of
#: bf16, 2^27 of f32, of rmsnorm's and layernorm's backward; of bias_gelu's, dyt's and a chain's for maps).
ROUNDS = {
    (True, False): (
        Round(128, 32, 8, 8, 4, "lanes", 32),
        Round(128, 32, 32, 3, 4, "lanes"),
        Round(512, 0, 16, 1, 2, "block", 256),
        _MAPS,
        Round(512, 0, 8, 1, 3, "block", 512, least=8),
        Round(128, 0, 32, 2, 3, "block", 512, least=6, dear=True),
        Round(512, 0, 16, 1, 2, "block"),
        Round(1024, 0, 16, 1, 3, "block", 2047),
        Round(256, 256, 32, 1, 3, "cluster", 2048, least=6, dear=True),
        Round(128, 128, 32, 3, 2, "cluster", 2048, dear=True),
        Round(512, 512, 16, 1, 4, "cluster", 2048),
        Round(1024, 0, 16, 1, 3, "block"),
        Round(256, 256, 32, 2, 2, "cluster", 4095),
        Round(128, 128, 32, 2, 3, "cluster", 4096, least=6),
        Round(128, 128, 32, 3, 2, "cluster", 4096, dear=True),
        Round(128, 128, 32, 2, 3, "cluster", 4096),
        Round(512, 512, 32, 1, 2, "cluster", least=6, dear=True),
        Round(256, 256, 32, 2, 2, "cluster", 8191),
        Round(256, 256, 32, 2, 2, "cluster", 8192, least=6),
        Round(128, 128, 32, 3, 2, "cluster", 8192),
        Round(256, 256, 32, 2, 2, "cluster"),
        Round(512, 512, 32, 1, 2, "cluster", least=6),
        Round(256, 256, 64, 1, 3, "cluster", dear=True),
        Round(512, 512, 32, 1, 2, "cluster"),
        *_LONG,
    ),
    (True, True): (
        Round(128, 32, 8, 8, 3, "lanes", 32),
        Round(128, 32, 32, 3, 2, "lanes"),
        _MAPS,
        Round(256, 0, 32, 1, 2, "block"),
        Round(256, 256, 32, 2, 2, "cluster", 4096, least=8, dear=True),
        Round(256, 256, 32, 1, 4, "cluster", 2048),
        Round(128, 128, 32, 3, 2, "cluster", 8191),
        Round(256, 256, 32, 2, 2, "cluster", least=8, dear=True),
        Round(128, 128, 32, 3, 2, "cluster"),
        Round(512, 512, 32, 1, 2, "cluster"),
        *_LONG,
    ),
    (False, False): (
        Round(128, 32, 4, 8, 4, "lanes", 32),
        Round(128, 32, 8, 4, 3, "lanes"),
        _MAPS,
        Round(512, 0, 8, 2, 3, "block"),
        Round(1024, 0, 8, 1, 3, "block"),
        Round(512, 512, 16, 1, 2, "cluster"),
        Round(512, 512, 32, 1, 1, "cluster"),
        *_LONG,
    ),
    (False, True): (
        Round(128, 32, 4, 8, 4, "lanes", 32),
        Round(128, 32, 8, 4, 3, "lanes"),
        Round(512, 0, 8, 1, 2, "block"),
        Round(1024, 0, 8, 1, 3, "block"),
        Round(512, 512, 16, 1, 2, "cluster"),
        Round(512, 512, 32, 1, 1, "cluster"),
        *_LONG,
    ),
}
#: Where a row's elements lie apart: neighbouring threads take neighbouring rows.
ROUNDS_APART = (
    Round(128, 1, 4, 4, 2, "across"),
    Round(256, 8, 8, 4, 2, "across"),
    Round(32, 1, 1, 4, 2, "across"),
)
#: Rows that follow one another so that blocks read once what all rows share: by whether elements that move have 16 bits or fewer, and
#: whether several parameters are shared; "none" for rows that are better taken each by its own blocks, as all longer ones than are named.
#: From searches on an H200 (layernorm and rmsnorm, 2^28 elements of bf16, 2^27 of f32).
PERSISTENT = {
    (True, False): (
        Round(0, 0, 0, 0, 0, "none", 12288),
        Round(256, 256, 64, 1, 4, "cluster", 32768),
    ),
    (True, True): (
        Round(0, 0, 0, 0, 0, "none", 6144),
        Round(128, 128, 64, 3, 2, "cluster", 8191, once=True, every=True),
        Round(128, 128, 64, 2, 4, "cluster", 8192, once=True),
        Round(0, 0, 0, 0, 0, "none", 16383),
        Round(512, 512, 64, 1, 2, "cluster", 16384, once=True),
        Round(0, 0, 0, 0, 0, "none", 32767),
        Round(512, 512, 64, 1, 2, "cluster", 32768, once=True),
    ),
    (False, False): (
        Round(0, 0, 0, 0, 0, "none", 12288),
        Round(512, 512, 16, 1, 4, "cluster", 16384),
        Round(1024, 1024, 16, 1, 2, "cluster", 65535, every=True),
        Round(1024, 1024, 16, 1, 2, "cluster", 65536),
    ),
    (False, True): (
        Round(0, 0, 0, 0, 0, "none", 8191),
        Round(256, 256, 32, 1, 3, "cluster", 8192),
        Round(256, 256, 32, 2, 2, "cluster", 16383, every=True),
        Round(256, 256, 32, 1, 4, "cluster", 16384, once=True),
        Round(512, 512, 32, 1, 2, "cluster", 32767, once=True, every=True),
        Round(512, 512, 32, 1, 2, "cluster", 32768, once=True),
        Round(512, 512, 32, 1, 2, "cluster", 65535, once=True, every=True),
        Round(512, 512, 32, 1, 2, "cluster", 65536, once=True),
    ),
}
#: The same of rows that begin within a vector; teams take rows that begin alike.  A "block" has a row by itself, of passes of which one
#: operand moves and that ask for no places.  From searches on H200s (layernorm).
PERSISTENT_EDGES = {
    (True, False): (Round(0, 0, 0, 0, 0, "none"),),
    (True, True): (
        *(Round(0, 0, 0, 0, 0, "none", 112), Round(32, 32, 32, 16, 3, "block", 128, every=True)),
        Round(32, 32, 64, 12, 3, "block", 256),
        *(Round(64, 64, 48, 8, 3, "block", 384), Round(64, 64, 80, 6, 3, "block", 640, parameters=80)),
        *(Round(128, 128, 80, 3, 3, "block", 960, parameters=80), Round(256, 256, 40, 2, 3, "block", 1280)),
        Round(0, 0, 0, 0, 0, "none", 768),
        Round(128, 128, 40, 5, 2, "cluster", 1280, once=True),
        Round(128, 128, 64, 3, 2, "cluster", 6144, once=True, every=True),
        Round(128, 128, 56, 3, 2, "cluster", 6400, once=True, every=True),  # 50,257 by seven vectors a thread, not eight
        Round(128, 128, 64, 3, 2, "cluster", 8192, once=True, every=True),
    ),
    (False, False): (
        Round(0, 0, 0, 0, 0, "none", 8192),
        Round(256, 256, 32, 2, 3, "cluster", 16384, every=True),
    ),
    (False, True): (
        *(Round(0, 0, 0, 0, 0, "none", 384), Round(128, 128, 16, 6, 3, "block", 512)),
        *(Round(0, 0, 0, 0, 0, "none", 1024), Round(256, 256, 20, 3, 3, "block", 1280)),
        Round(128, 128, 32, 4, 3, "cluster", 8192, once=True, every=True),
        Round(256, 256, 32, 2, 2, "cluster", 16384, every=True),
    ),
}
#: The same of rows that share no parameters, but of which two operands or more stay on the chip (second key: more than two), where no block
#: has room beside one of theirs. From a search on an H200 (the gradient of softmax), on which all other lengths were slower so.
PERSISTENT_ALONE = {
    (True, False): (Round(0, 0, 0, 0, 0, "none"),),
    (True, True): (Round(0, 0, 0, 0, 0, "none"),),
    (False, False): (
        Round(0, 0, 0, 0, 0, "none", 49152),
        Round(512, 512, 32, 1, 1, "cluster", 65536),
    ),
    (False, True): (Round(0, 0, 0, 0, 0, "none"),),
}
#: The 32-bit words of the results of all readings of such a row at most: as many as the search had, several times.
ALONE_WORDS = 7
