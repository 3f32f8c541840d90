"""How rows are shared out on a GPU, as data: what kgen's runtime reads, and (printed in C++, `kgen_launches.cuh`) the host part of a
written file.

A *ladder* was measured for one kind of pass: "once" holds a row on the chip behind one reading that reduces, "many" likewise where that
reading has more than two results, "again" behind several readings; "narrow" holds a row of whose elements bytes are made, "narrower" behind
several readings; "pieces" goes by pieces of a row; "read" holds nothing.  Its steps go by the row's length in whole 16-byte vectors; the
first that is long enough holds.  *Rules* are for all else; the first that applies and fits the device holds.  What follows from a step
(the threads of a team, the vectors of each) decides the order in which a row is combined, so nothing but the row's length, layout and
dtypes may choose it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kgen.backends.shared import MAX_STATIC, declared

#: A length that no row exceeds.
ANY = 2**62
#: Shared memory that a block uses for rows at most, and where two blocks of a multiprocessor are to have their own.
MAX_SHARED, HALF_SHARED = 200 * 1024, 104 * 1024
#: Where readings follow one another: segments that one is behind beyond a row's own (as in kgen_cached.cuh), and the most blocks of the
#: launch before, which clears what blocks tell one another.
LATER, CLEARING = 192, 264
#: With fewer rows than this, several blocks share a long row; also with fewer than so many of this many of the least segments: the last
#: that blocks take alone leave most of the device idle, beside which two more launches are little.
FEW_ROWS, FEW_LONG_ROWS, LONG_ROW = 528, 4224, 64
#: Who stores what follows from a row that blocks shared: blocks of so many threads, each with so many vectors, so many on a multiprocessor.
STORING = (128, 4, 8)
#: Who combines the segments of rows that lie side by side, from so many of them on: blocks of so many threads, so many for a row.
COMBINING, MANY_PARTS = (128, 32), 64
#: Where neighbouring elements lie further apart than this, in bytes, neighbouring threads take neighbouring rows.
SECTOR = 32
#: Vectors of a row up to which the threads of a warp have one at most, where no step of a ladder is for so short ones.
SHORT = 32
#: Vectors of a segment at least and at most, of a row whose elements are neighbours, and where they lie apart; so many segments of a row
#: make it take longer ones.
SEGMENT, LONGEST_SEGMENT, SEGMENT_APART, MANY_SEGMENTS = 1024, 16384, 512, 4096
#: Rows of which a thread of a map takes its columns where it reads parameters of these, by the elements of a vector (of others 4), from so
#: many elements on.
MAP_ROWS, MAP_MANY = {8: 8}, 1 << 20
#: Up to so many neighbours a thread of a map takes vectors of so many pieces of a row; where neighbours are in other rows, of so many rows
#: for up to so many of them: what more of them take of a thread's registers is not there for others.
PIECES_TAPS, MAP_PIECES, MAP_BELOW = 5, 8, ((5, 4), (10, 2))
#: Readings beyond which blocks of a cluster do not share a row.
MOST_READINGS = 16
#: Bytes of what is made once of a thread's elements (`kgen.backends.remembered`), up to which registers hold it (`HOLDS` of lasting.cu).
#: Picked by hand: with it none of the kernels looked at puts registers on the stack, and no other was timed.
CROWDED = 128


class Step(NamedTuple):
    """For rows of up to `longest` vectors: teams of `team` threads (a power of two, or 0: a block for a row), blocks of up to `threads`,
    each thread with `vectors` at a time, `blocks` of them on a multiprocessor; the row in "registers", "shared" memory, a "cluster"'s,
    or "loop" (read each time).  `alone`: where no parameters of columns are read beside the rows; `whole`: where these are whole vectors
    of more than four elements."""

    longest: int
    threads: int
    team: int
    vectors: int
    blocks: int
    where: str
    alone: bool = False
    whole: bool = False


class Rule(NamedTuple):
    """A step, and what it asks for.  Beside a step's, `where` is "piece" for a row read as one piece each time, "segments", "cached" for
    such that blocks take in turns, a later reading close behind the one before (kgen_cached.cuh), "abreast" for rows side by side of which
    a thread takes several, in registers, or "abreast_segments" (kgen_teams.cuh).

    `warps`: of a block at least, where its row says how many it has.  `trims`: whether the blocks of a cluster have only those threads
    that all have vectors, where rows begin or end within one.  It applies where a thread's vector of all operands that are held (else
    read) takes `registers`, from the first number to the second; where a vector has `elements`; where up to `held` operands are held,
    and take up to `room` bytes of a block; where a row has more than `above` vectors, and so many `readings` or more reduce it.  `alone`
    and `whole` are a step's.  `dear`: of passes alone whose elements take more than DEAR_ELEMENT instructions.
    """

    longest: int
    threads: int
    team: int
    vectors: int
    blocks: int
    where: str
    warps: int = 2
    trims: bool = False
    registers: tuple[int, int] = (1, ANY)
    elements: tuple[int, int] = (1, 16)
    held: int = 64
    room: int = ANY
    above: int = -1
    readings: int = 0
    alone: bool = False
    whole: bool = False
    dear: bool = False


def measured(step: Step) -> Rule:
    """The rule of a ladder's step."""
    return Rule(*step[:6], trims=True, alone=step.alone, whole=step.whole)


#: From searches on H200s (bf16 and f32, 2^28 elements; also of lengths that are no powers of two, with rows that begin within a vector).
SHIPPED: dict[str, dict[str, tuple[Step, ...]]] = {
    "sm_90": {
        "once": (
            Step(48, 128, 32, 2, 16, "registers"),
            Step(64, 128, 32, 2, 8, "registers"),
            Step(127, 128, 32, 4, 12, "registers"),
            Step(128, 128, 32, 4, 8, "registers"),
            Step(192, 128, 0, 2, 16, "registers"),
            Step(255, 128, 0, 2, 8, "registers"),
            Step(256, 64, 0, 4, 16, "registers"),
            Step(512, 256, 0, 2, 8, "registers"),
            Step(640, 512, 0, 2, 4, "shared"),
            Step(768, 512, 0, 2, 4, "registers"),
            Step(896, 256, 0, 4, 4, "shared"),
            Step(1024, 512, 0, 2, 4, "registers"),
            Step(2048, 256, 0, 8, 4, "registers"),
            Step(4096, 512, 0, 8, 2, "shared"),
            Step(6144, 512, 0, 12, 2, "shared"),
            Step(6400, 640, 0, 10, 2, "shared", alone=True),
            Step(8064, 256, 256, 8, 6, "cluster"),
            Step(8192, 512, 512, 8, 3, "cluster", alone=True, whole=True),
            Step(8192, 1024, 0, 8, 1, "shared"),
            Step(12288, 1024, 0, 12, 1, "shared"),
            Step(32768, 256, 256, 8, 6, "cluster"),
            Step(65536, 512, 512, 8, 3, "cluster"),
        ),
        "many": (
            Step(64, 128, 32, 2, 8, "registers"),
            Step(128, 128, 32, 4, 8, "shared"),
            Step(256, 128, 32, 8, 6, "shared"),
            Step(512, 128, 0, 8, 8, "shared"),
            Step(1024, 128, 0, 8, 8, "shared"),
            Step(2048, 256, 0, 8, 4, "shared"),
            Step(4096, 512, 0, 8, 2, "shared"),
            Step(6144, 512, 0, 12, 2, "shared"),
            Step(8192, 256, 256, 16, 3, "cluster"),
            Step(12288, 1024, 0, 12, 1, "shared"),
            Step(32768, 256, 256, 16, 3, "cluster"),
            Step(65536, 512, 512, 8, 3, "cluster"),
        ),
        "again": (
            Step(48, 128, 32, 2, 12, "registers"),
            Step(64, 128, 32, 2, 8, "registers"),
            Step(127, 64, 32, 4, 20, "shared"),
            Step(128, 128, 32, 4, 8, "registers"),
            Step(192, 128, 32, 8, 6, "registers"),
            Step(255, 128, 0, 2, 8, "registers"),
            Step(256, 64, 0, 4, 16, "registers"),
            Step(384, 128, 0, 4, 8, "registers"),
            Step(511, 256, 0, 2, 8, "shared", whole=True),
            Step(512, 256, 0, 2, 8, "registers"),
            Step(640, 128, 0, 6, 8, "shared"),
            Step(768, 256, 0, 4, 4, "registers"),
            Step(1024, 256, 0, 6, 4, "shared"),
            Step(1536, 256, 0, 8, 4, "shared"),
            Step(2048, 256, 0, 8, 3, "shared"),
            Step(4095, 512, 0, 8, 2, "shared", whole=True),
            Step(4096, 512, 0, 8, 2, "registers"),
            Step(6144, 512, 0, 12, 2, "shared"),
            Step(8064, 256, 256, 8, 6, "cluster"),
            Step(8192, 1024, 0, 8, 1, "shared"),
            Step(12288, 1024, 0, 12, 1, "shared"),
            Step(16384, 256, 256, 8, 6, "cluster"),
            Step(32766, 256, 256, 8, 6, "cluster", whole=True),
            Step(32767, 512, 512, 8, 3, "cluster"),
            Step(32768, 256, 256, 8, 6, "cluster"),
            Step(65536, 512, 512, 8, 3, "cluster"),
        ),
        "read": (
            Step(48, 128, 16, 3, 8, "registers"),
            Step(64, 128, 32, 2, 12, "registers"),
            Step(128, 128, 16, 8, 8, "loop"),
            Step(255, 128, 32, 8, 8, "registers"),
            Step(2047, 128, 32, 4, 8, "loop"),
            Step(8192, 128, 128, 4, 8, "loop"),
            Step(49152, 256, 256, 4, 4, "loop"),
        ),
        "narrow": (
            Step(1, 128, 1, 1, 8, "registers"),
            Step(2, 128, 1, 2, 8, "registers"),
            Step(4, 128, 2, 2, 8, "registers"),
            Step(8, 128, 4, 2, 8, "registers"),
            Step(16, 128, 4, 4, 8, "registers"),
            Step(32, 128, 8, 4, 8, "registers"),
            Step(64, 128, 32, 2, 12, "registers"),
            Step(128, 128, 32, 4, 12, "registers"),
            Step(256, 64, 0, 4, 16, "registers"),
            Step(512, 64, 0, 8, 12, "shared"),
            Step(1024, 128, 0, 8, 8, "shared"),
            Step(2048, 256, 0, 8, 5, "shared"),
            Step(4096, 512, 0, 8, 2, "shared"),
            Step(6144, 512, 0, 12, 2, "shared"),
            Step(8064, 256, 256, 8, 6, "cluster"),
            Step(8192, 1024, 0, 8, 1, "shared"),
            Step(12288, 1024, 0, 12, 1, "shared"),
            Step(32768, 256, 256, 8, 6, "cluster"),
            Step(65536, 512, 512, 8, 3, "cluster"),
        ),
        "narrower": (
            Step(48, 128, 32, 2, 12, "registers"),
            Step(64, 128, 32, 2, 8, "registers"),
            Step(127, 64, 0, 2, 24, "shared"),
            Step(128, 128, 32, 4, 8, "registers"),
            Step(192, 128, 32, 8, 6, "registers"),
            Step(255, 128, 0, 2, 8, "registers"),
            Step(256, 64, 0, 4, 16, "registers"),
            Step(384, 128, 0, 4, 8, "registers"),
            Step(512, 64, 0, 8, 12, "shared"),
            Step(640, 128, 0, 6, 8, "shared"),
            Step(768, 256, 0, 4, 4, "registers"),
            Step(1024, 128, 0, 8, 6, "shared"),
            Step(1536, 256, 0, 8, 4, "shared"),
            Step(2048, 256, 0, 8, 4, "shared"),
            Step(4096, 512, 0, 8, 2, "registers"),
            Step(6144, 512, 0, 12, 2, "shared"),
            Step(8064, 256, 256, 8, 6, "cluster"),
            Step(8192, 1024, 0, 8, 1, "shared"),
            Step(12288, 1024, 0, 12, 1, "shared"),
            Step(16384, 256, 256, 8, 6, "cluster"),
            Step(32767, 512, 512, 8, 3, "cluster"),
            Step(32768, 256, 256, 8, 6, "cluster"),
            Step(65536, 512, 512, 8, 3, "cluster"),
        ),
        "pieces": (
            Step(16, 128, 4, 4, 4, "registers"),
            Step(32, 128, 8, 4, 4, "registers"),
            Step(64, 128, 16, 4, 4, "registers"),
            Step(128, 128, 32, 4, 6, "registers"),
            Step(256, 128, 32, 8, 4, "registers"),
            Step(512, 64, 0, 8, 8, "registers"),
            Step(1024, 128, 0, 8, 4, "registers"),
            Step(2048, 256, 0, 8, 2, "registers"),
            Step(4096, 512, 0, 8, 1, "registers"),
            Step(16384, 256, 256, 8, 2, "cluster"),
            Step(65536, 512, 512, 8, 1, "cluster"),
        ),
    },
}  # fmt: skip

#: Before such a ladder's steps: for rows that end within a vector, where several readings reduce them and two or more parameters of columns
#: are read, whose vectors begin elsewhere than those of most rows. Steps without spills; which of them by a search on an H200.
SHIFTED = (Rule(6144, 256, 256, 8, 4, "cluster", trims=True, above=2048),
           Rule(12288, 256, 256, 8, 6, "cluster", trims=True, above=8192))  # fmt: skip
#: As well: for rows of several dims, of 16-bit elements, that several readings reduce; to find where an element lies takes the registers
#: that would hold a row. From a search on an H200 (group norm, rows of 3,136 vectors).
SEVERAL_DIMS = (Rule(3584, 512, 0, 8, 3, "shared", elements=(5, 16), trims=True, above=2048),)
#: And for those whose vectors go over the ends of lines: half a warp has what it takes of a parameter for twice as many elements. From a
#: search on an H200 (group norm, rows of 49 and 61 vectors).
STRADDLED = (Rule(64, 128, 16, 4, 8, "registers", elements=(5, 16), trims=True, above=32),)
#: Before all others: for rows of several dims of one operand, which several readings reduce to what alone is stored, and which have more
#: bytes than that, so that no registers hold them. What lies far apart is read again sooner than blocks that wait for one another keep
#: it. From a search on an H200 (variances of channels, whose rows are pieces of 16, 49, 196 and 784 elements, bf16 and f32).
SCATTERED = (Rule(ANY, 128, 128, 16, 6, "segments", registers=(1, 1), elements=(1, 1)),
             Rule(ANY, 128, 128, 8, 8, "segments", registers=(1, 4)))  # fmt: skip
SCATTERED_ABOVE = 1 << 16
#: The same of such rows that are read once, in vectors of less than 16 bytes or, of two operands, of 16-bit elements; vectors of lines that
#: are longer than so many elements go as others do, and rows of no more bytes. What stands still along lines takes no registers. From
#: searches on an H200 (sums of channels, the gradients of a batch norm's and a group norm's parameters, whose lines have 49 to 12,544
#: elements, bf16 and f32).
SCATTERED_ONCE = (Rule(ANY, 64, 64, 8, 16, "segments", registers=(1, 2), elements=(1, 1)),
                  Rule(ANY, 128, 128, 8, 8, "segments", registers=(1, 4), elements=(2, 4)),
                  Rule(ANY, 128, 128, 4, 12, "segments", registers=(5, 8), elements=(5, 16)))  # fmt: skip
SCATTERED_LINE, SCATTERED_ONCE_ABOVE = 512, 1 << 14
#: Before a ladder's steps, for rows of one dim that end within a vector: of 16-bit elements that are read "once", or "again" beside no more
#: than one parameter of columns, and of f32 that are read once; what is `alone`, of rows that are read once beside no parameter. They are
#: in shared memory, not in registers as whole vectors. From searches on an H200 (softmax, rmsnorm, layer norms with one parameter and none;
#: of f32 what is not named was faster as it was).
ENDING = (
    Rule(128, 128, 32, 4, 12, "shared", elements=(5, 16), above=112),
    Rule(192, 128, 32, 6, 10, "shared", elements=(5, 16), above=128),
    Rule(256, 128, 32, 8, 8, "shared", elements=(5, 16), above=192),
    Rule(512, 128, 0, 4, 12, "shared", elements=(5, 16), above=256),
    Rule(1024, 256, 0, 4, 6, "shared", elements=(5, 16), above=512),
    Rule(1920, 320, 0, 6, 4, "shared", elements=(5, 16), above=1024),
    Rule(2048, 256, 0, 8, 4, "shared", elements=(5, 16), above=1920),
    Rule(2560, 512, 0, 6, 3, "shared", elements=(5, 16), above=2048),
    Rule(3072, 512, 0, 6, 3, "shared", elements=(5, 16), above=2560, alone=True),
    Rule(6656, 512, 0, 13, 2, "shared", elements=(5, 16), above=6144, alone=True),
    Rule(4096, 1024, 0, 4, 2, "shared", elements=(3, 4), above=2048, alone=True),
)
#: And for rows of one operand whose elements are dear. From a search on an H200 (softmax over a temperature and of capped scores).
DEAR = (Rule(1024, 256, 0, 4, 5, "registers", trims=True, above=512), Rule(2048, 512, 0, 4, 3, "registers", trims=True, above=1024),
        Rule(8192, 256, 256, 8, 6, "cluster", trims=True, above=4096))  # fmt: skip
#: Instructions of an element, in all readings of its row together, beyond which it is dear: an rmsnorm's gradient has 10, a gated one's 43.
DEAR_ELEMENT = 24
KINDS = ("once", "again", "read", "many", "narrow", "narrower", "pieces")
FEW_WORDS = 4  # of 32 bits, of a reading's result, beyond which fewer threads with more vectors each are to combine theirs
FEW, PAIR = (1, 4), (5, 8)  # registers of one operand's vector, and of two
#: Rows side by side of which a thread takes several: so many where as many threads are left, or so many. LOOKED: without sums to keep.
ASIDE, LOOKED = ((4, 1 << 22), (2, 1 << 14)), ((8, 1 << 17), (4, 1 << 16), (2, 1 << 14))


class Sharing(NamedTuple):
    """Who adds up a range, where ranges have `least` terms or more in the mean: teams of so many threads, of blocks with the rows of so
    many teams; so many `blocks` of a multiprocessor share ranges of the rows of up to `most`; `orders` if also of terms in an order."""

    least: int
    team: int
    rows: int
    blocks: int = 0
    most: int = 0
    orders: bool = True


ALONE = Sharing(0, 0, 0)
#: Those who share such rows where there are fewer than so many rows.
ASIDE_SHARED, ASIDE_FEW = Sharing(0, 8, 32), 1 << 18
#: Of ranges of 16 bits: a thread has 16 bytes of neighbours.  The first that fits.
ASIDE_LONG = (Sharing(1024, 8, 16, 5, 2048, False), Sharing(1024, 32, 4), Sharing(96, 8, 16, orders=False))
#: Up to so many keys of each row's own every element of a result is compared with all of them; more are sorted, and each element searches
#: them for its own. On an H200 (4,096 rows with as many results): 16 keys took 635 us compared and 828 sorted, 32 keys 1,266 and 864; on a
#: CPU's thread (512 rows) 256 keys took 12.8 ms and 14.5.
KEYED_FEW = {"cuda": 20, "triton": 64, "cpp": 320}

#: Rows of which a thread takes an element each, where it reads windows: so many of up to so many neighbours; where it reads them at whole
#: steps alone, and where one divides (as gradients do). Of rows one below the other, which share what they read, as did best on an H200.
WINDOW_ROWS = (((8, 8), (16, 4), (48, 2)), ((16, 4), (48, 2)))
WINDOW_ROWS_BELOW = (((16, 8), (30, 2), (64, 4)), ((16, 4), (30, 2), (64, 4)))
#: Neighbours in a row that a thread takes where windows along it share what they read: of one row, as did best on an H200; of windows that
#: go across rows, too, of so many rows one below the other.
WINDOW_LANES, WINDOW_ROWS_ALONG = 4, ((16, 8), (64, 4))


def map_rows(vec: int) -> int:
    """Of how many rows a thread of a map takes its columns, in vectors of so many elements."""
    return MAP_ROWS.get(vec, 4)


def window_rows(taps: int, below: bool = False, divides: bool = False, along: bool = False, shares: bool = False) -> int:
    """Of how many rows, one `below` the other, a thread takes an element each that reads so many neighbours in windows, or several that lie
    `along` a row, of several rows where these read the same lines (`shares`); `divides`: some lie at places that are quotients."""
    table = WINDOW_ROWS_ALONG if along else (WINDOW_ROWS_BELOW if below else WINDOW_ROWS)[divides]
    return 1 if along and not (below and shares) else next((rows for most, rows in table if taps <= most), 1)


def pieces(taps: int, below: bool) -> int:
    """Of how many pieces of a row, or rows one `below` the other, a thread takes vectors, which reads so many neighbours."""
    most = MAP_BELOW if below else ((PIECES_TAPS, MAP_PIECES),)
    return next((many for longest, many in most if 0 < taps <= longest), 1)


def kind(held: bool, reductions: int, words: int, narrow: bool = False, pieces: bool = False) -> str:
    """The kind of a pass, by whether rows are held, how many readings reduce them, the 32-bit words of a reading's result, and whether rows
    of wider elements become bytes: such `narrow` ones leave less time for what a thread does besides, so that it takes more of one,
    and in `pieces` more registers."""
    if held and pieces:
        return KINDS[6]
    if held and reductions and narrow:
        return KINDS[4 if reductions == 1 else 5]
    if held and reductions == 1 and words > FEW_WORDS:
        return KINDS[3]
    return KINDS[2] if not held else KINDS[min(reductions, 2) - 1] if reductions else KINDS[0]


#: Teams of short rows whose elements move one by one or two by two, and what each thread takes: few threads have none.  Of wider vectors
#: a thread has three, where that leaves fewer without one than a thread for each.  From searches on an H200.
ALONE_TEAMS = ((1, 2), (1, 3), (1, 4), (1, 5), (2, 4), (2, 5), (4, 4), (4, 5), (8, 4))
TEAMS_OF_THREES = (2, 4, 8)


def _short(one: str) -> list[Rule]:
    """Rows with a few vectors a thread, or a warp's; `one` says where a row in one piece is.  Three vectors of f32 go to four threads."""
    found = [Rule(team * own, 128, team, own, 8, one, registers=FEW, elements=(1, 2)) for team, own in ALONE_TEAMS]
    found += [Rule(1 << k, 128, 1 << k, 1, 8, one) for k in range(2)]
    found += [Rule(3, 128, 1, 3, 8, one, registers=(1, 2)), Rule(3, 128, 1, 3, 8, one, registers=FEW, elements=(5, 16))]
    found.append(Rule(4, 128, 4, 1, 8, one))
    for team in TEAMS_OF_THREES:
        found += [Rule(3 * team, 128, team, 3, 8, one, registers=FEW), Rule(4 * team, 128, 4 * team, 1, 8, one)]
    return [*found, Rule(64, 128, 32, 2, 8, one, registers=FEW), Rule(128, 128, 32, 4, 8, one, registers=FEW)]


def _single(one: str) -> list[Rule]:
    """Rows that move element by element."""
    return [Rule(n, 1024, 1024, n // 1024, 1, one, registers=(1, 1), elements=(1, 1)) for n in (8192, 16384)]


#: Rows whose elements are neighbours.
HELD = (
    *_short("registers"),
    Rule(128, 64, 0, 2, 16, "shared", registers=PAIR, elements=(5, 16)),
    Rule(512, 128, 0, 4, 6, "shared", registers=PAIR, elements=(5, 16), above=256, readings=2),
    Rule(512, 256, 0, 2, 6, "shared", registers=PAIR, elements=(5, 16), alone=True),
    Rule(512, 256, 0, 2, 6, "shared", registers=PAIR, elements=(5, 16), above=256, dear=True),
    Rule(128, 128, 0, 1, 12, "registers", registers=PAIR, elements=(5, 16)),
    Rule(512, 512, 0, 1, 3, "registers", registers=PAIR, elements=(5, 16)),
    Rule(1024, 512, 0, 2, 3, "shared", registers=PAIR, elements=(5, 16)),
    Rule(1024, 512, 0, 2, 2, "registers", registers=PAIR),
    Rule(2048, 512, 0, 4, 2, "registers", registers=FEW),
    Rule(2048, 512, 0, 4, 2, "shared", registers=PAIR, above=1024),
    Rule(4096, 512, 0, 8, 2, "registers", registers=FEW, above=2048),
    *_single("registers"),
    Rule(ANY, 256, 256, 8, 3, "segments", registers=(1, 1), elements=(1, 1), above=16384),  # clusters would hold too little each
    Rule(7360, 768, 0, 10, 2, "shared", warps=1, room=HALF_SHARED),
    Rule(2048, 256, 256, 4, 6, "cluster"),
    Rule(16384, 512, 512, 4, 3, "cluster", registers=PAIR, elements=(1, 4)),
    Rule(ANY, 256, 256, 8, 6, "cluster"),
    Rule(4096, 512, 512, 4, 3, "cluster"),
    Rule(ANY, 512, 512, 8, 3, "cluster"),
    Rule(98304, 512, 512, 12, 2, "cluster", held=1),
    Rule(ANY, 512, 512, 8, 2, "cached", held=1, room=1 << 23),
    Rule(ANY, 512, 512, 4, 2, "segments", registers=FEW, elements=(1, 4), held=1, above=1 << 25),  # segments of many vectors each
    Rule(ANY, 256, 256, 4, 3, "segments"),
    Rule(ANY, 128, 32, 4, 4, "segments"),  # whose threads need no memory to put their parts together
)
#: Short rows of one operand that are read once, of whole vectors: a thread has two or more, as some teams are at work at one time. From a
#: search on an H200 (means, maxima, logsumexp and argmax of 1 to 32 vectors, bf16 and f32).
READ_SHORT = tuple(
    Rule(chunks, 128, team, own, 8, "piece", registers=FEW, elements=(3, 16), above=above)
    for above, chunks, team, own in ((1, 2, 1, 2), (2, 3, 1, 3), (3, 4, 2, 2), (6, 8, 4, 2), (12, 16, 8, 2), (24, 32, 8, 4))
)
READ = (
    *READ_SHORT,
    *_short("piece"),
    Rule(64, 128, 32, 2, 8, "piece", registers=PAIR, elements=(3, 16)),  # by a warp, not by blocks of few (dot products)
    Rule(1024, 512, 0, 2, 3, "piece", registers=(5, 16), elements=(1, 4)),
    Rule(1024, 512, 0, 2, 2, "piece", registers=(5, 16), elements=(5, 16)),
    Rule(2048, 512, 0, 4, 3, "piece", registers=FEW, elements=(1, 4)),
    Rule(2048, 512, 0, 4, 2, "piece", registers=FEW, elements=(5, 16)),
    *_single("piece"),
    Rule(ANY, 256, 256, 2, 3, "segments", registers=(13, 64)),  # four vectors of as many operands would not fit in registers
    Rule(ANY, 256, 256, 4, 4, "segments", elements=(1, 4)),
    Rule(ANY, 256, 256, 4, 3, "segments", elements=(5, 16)),
    Rule(ANY, 128, 32, 4, 4, "segments"),
)


#: Rows that are no whole 16-byte vectors, of which a block's move by way of shared memory as one piece (kgen_staged.cuh): of so many
#: elements at least, in more vectors than are taken without it, and at most.  Teams have as many threads as leave each no more than so many
#: elements, by the bytes of one, and no more registers of all operands that stay than that; each needs so many besides.  From searches on
#: an H200 (softmax and its gradient, logsumexp, layer norm, alone, gated and behind a residual, in bf16 and f32).
STAGED_LEAST, STAGED_VECTORS, STAGED_MOST = 6, 5, 896
STAGED_ELEMENTS, STAGED_WORDS, STAGED_BESIDE = {1: 40, 2: 40, 4: 28, 8: 14}, 80, 14

#: What a kernel's `Walk` says of them (KEEP).
STAGED = 7


def staged_threads(team: int) -> int:
    """The threads of a block with such rows, which has several warps for teams that lie apart (`staggered`)."""
    return 256 if team in (8, 32) else 128


#: Rows that a thread takes abreast at most: parts of more would not fit in registers.
MOST_ABREAST = 8
#: Elements of a row up to which it is taken abreast where an element is looked up for each: threads wait for those one after the other.
LOOKED_UP = 64
#: Rows side by side of which a thread takes several abreast, by how many operands it reads: those that stay in registers, and long ones.
#: From searches on H200s (columns about their mean, their variances, softmax and its gradient, bf16 and f32).
ABREAST_HELD = (
    Rule(2, 128, 1, 2, 8, "abreast", registers=(1, 2)),
    Rule(4, 128, 1, 4, 8, "abreast", registers=(1, 2)),
    *(Rule(most * team, 128, team, most, 6, "abreast", registers=(1, 1)) for team in (1, 2, 4, 8) for most in (6, 8)),
    Rule(96, 256, 16, 6, 3, "abreast", registers=(1, 1)),
    Rule(128, 256, 16, 8, 3, "abreast", registers=(1, 1)),
    Rule(192, 256, 32, 6, 3, "abreast", registers=(1, 1), room=2 * 192),
    Rule(256, 256, 32, 8, 3, "abreast", registers=(1, 1), room=2 * 256),
    Rule(256, 256, 16, 16, 2, "abreast", registers=(1, 1)),
    Rule(64, 256, 16, 4, 4, "abreast", registers=(2, 2)),
    Rule(128, 512, 16, 8, 1, "abreast", registers=(2, 2)),
    Rule(256, 512, 32, 8, 1, "abreast", registers=(2, 2)),
    Rule(512, 512, 64, 8, 1, "abreast", registers=(2, 2)),
)
ABREAST = (
    Rule(ANY, 128, 8, 8, 6, "abreast_segments", registers=(1, 1), above=512),
    Rule(ANY, 256, 8, 4, 4, "abreast_segments", registers=(2, 2), above=128),
    Rule(ANY, 256, 8, 4, 2, "abreast_segments", registers=(3, 4), above=1024),
)
#: Such of one operand that blocks, or clusters, hold in shared memory; 64 bytes of these lie beside one another where there is room for
#: them. A thread adds up no more one by one than results allow. From a search on an H200.
BESIDE = (
    Rule(512, 256, 8, 64, 5, "shared", held=1, room=2 * 512, above=256),
    Rule(512, 256, 32, 16, 2, "abreast", registers=(1, 1), held=1, above=256),
    Rule(512, 256, 16, 32, 5, "shared", held=1, room=4 * 512, above=128),
    Rule(1024, 512, 32, 32, 3, "shared", held=1, room=4 * 1024, above=512),
    *ABREAST,
    Rule(4096, 512, 32, 32, 4, "cluster", held=1, room=2 * 4096, above=1024),
)


class Narrow(NamedTuple):
    """Teams along long columns of which so few lie side by side that a line has all of some rows (points, channels last): where it is up to
    `line` bytes from one row to the next, and a thread reads `registers` for an element; then as a rule's."""

    line: int
    registers: int
    threads: int
    team: int
    vectors: int
    blocks: int


#: The first that a column of more elements than NARROW_ABOVE allows.  From a search on an H200 (variances, columns about their mean over
#: their deviation, softmax and its gradient, maxima; 3 to 32 columns, bf16 and f32).
NARROW = (Narrow(8, 1, 128, 128, 8, 6), Narrow(64, 1, 128, 64, 16, 4), Narrow(64, 2, 128, 64, 8, 4))
NARROW_ABOVE = 2048


def _apart(one: str, blocks: int) -> tuple[Rule, ...]:
    """Rows whose elements lie apart: neighbouring threads take neighbouring rows, `blocks` of them on a multiprocessor in a loop.  Of long
    rows of one operand with up to 4 bytes an element, more elements are on their way."""
    found = [*ABREAST_HELD, *(Rule(1 << k, 128, 1, 1 << k, 8, one) for k in range(5))]
    for side in (32, 16, 8, 4):
        found += [Rule(n, side * 8, 8, n // 8, 4, one, held=2) for n in (64, 128)]
        found += () if side < 32 else BESIDE if one == "registers" else ABREAST
        found += [Rule(ANY, 256, 8, 16, 4, "segments", registers=(1, 1), above=8192)] if side == 32 else []
        found.append(Rule(ANY, side * 8, 8, 8, blocks, "segments"))
    return (*found, Rule(ANY, 128, 1, 8, 4, "segments"))


#: By whether elements lie apart and whether a row is held.
RULES = {(False, True): HELD, (False, False): READ, (True, True): _apart("registers", 3), (True, False): _apart("piece", 6)}


def stays(elements: int, held: Sequence[int], apart: bool, words: int, readings: int) -> bool:
    """Whether a row of so many elements stays on the chip on every device, wherever it begins: whether rules keep it in registers, in
    whatever vectors it moves.  `held`: bytes of an element of each operand that is to stay; `apart`: whether elements lie apart; `words`
    and `readings`: of a reading's result, and how many reduce.  Ladders may only keep more: see `loops`."""

    def keeps(rule: Rule, vec: int) -> bool:
        registers = sum(max(1, vec * size // 4) for size in held)
        return (
            rule.where == "registers"
            and rule.above < elements // vec <= rule.longest
            and rule.registers[0] <= registers <= rule.registers[1]
            and rule.elements[0] <= vec <= rule.elements[1]
            and len(held) <= rule.held
            and declared(rule.threads, rule.team, apart, False, words, readings) <= MAX_STATIC
        )

    widest = 1 if apart or not held else 16 // max(held)
    vectors = [1 << k for k in range(widest.bit_length())]
    return bool(held) and all(any(keeps(rule, vec) for rule in RULES[apart, True]) for vec in vectors)


def loops(ladder: Sequence[Step]) -> bool:
    """Whether a ladder has rows read each time that rules would keep."""
    return any(step.where == "loop" for step in ladder)
