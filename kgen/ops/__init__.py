"""The one table of operators.

Everything that kgen knows of an operator stands in its row (`kgen.ops.table`): its arguments and dtype rule, its torch reference,
its gradient in kgen's own language, a SymPy formula that proves the gradient, its value on numbers, its notation, what it does to
signs and errors, and for each target its spelling and error bound.  Adding an operator is adding a row, to the table or by
`register`; `tests/ops` runs over the rows.

Dtype rules (`check.py` applies them):

    arith    promote; bools only where the row spells them       float    promote, integers go to f32
    same     as its one operand, no bools                        test     any operand, bool result
    compare  promote, bool result                                logical  bools, bool result
    bits     integers or bools, promote                          shift    integers, promote
    words    integers, computed as i64                           where    a bool, then two that promote
    stop     as its operand

Error bounds are in units in the last place (ulp) of the exact result, for f32 and f64; 0.5 is correct rounding.  CUDA's and Triton's
(libdevice) are those of the CUDA programming guide's tables, which count from the correctly rounded result, plus 0.5, but for kgen's own
functions: erfc in f32 has 6 (its formula in exact steps 3.8, the hardware's exp2 the rest; on C++, over all floats, 5.4 was measured);
C++'s others are the 4 ulp that glibc states for its vector library.  `kgen check --operators` measures the f32 ones; the f64 ones of CUDA
and Triton are the tables' alone.  Some f64 bounds of C++ are wider or hold less: lgamma's (12, to leave room near its negative zeros; 4.2
was measured away from them); sin, cos and tan, whose vector library is 8 (tan: 14) ulp off at the f64 nearest to a multiple of pi/2, about
5.3e255; and digamma's for x < 0, which is relative to the greatest of 1 and the two terms that the reflection subtracts, |digamma(1 - x)|
and |pi / tan(pi x)|, so near its zeros there no bound on the result itself holds.
"""

from __future__ import annotations

import re
from collections import ChainMap

from kgen.ops.formats import BY_CHANCE, CODES, CONVERTS, INNER, MODES, PAIRS, code_name, modes, value_name
from kgen.ops.intervals import Move
from kgen.ops.row import CALL, LOOSE, PRODUCT, SUM, UNARY, Brief, Eager, Errors, Notation, Op, Reduction, Sign, Spell
from kgen.ops.scans import SCANS
from kgen.ops.table import OPS, REDUCTIONS

CONSTANTS = ("pi", "inf", "nan")
#: The operators of programs: those of the table, and those that read and write floats of few bits.
ROWS = ChainMap(OPS, CODES, INNER)


def tree_depth(n: int) -> int:
    """The most additions (or multiplications) that one of `n` reduced elements passes through on any target.

    The skeletons keep it, and the bounds of `testing/bounds.py` rest on it: floats are accumulated in f32 (f64 where one of
    them is f64) in an order fixed by `n` alone, a tree of at most this depth.  Partials from 0 (from 1 in a product) count
    no addition, since adding 0 rounds nothing.
    """
    return max(0, min(n - 1, 64 + (n - 1).bit_length()))


#: The dtype rules.
RULES = ("arith", "float", "same", "test", "compare", "logical", "bits", "shift", "words", "where", "stop")
#: The operators that are not kgen's own.
REGISTERED: set[str] = set()


def register(row: Op) -> None:
    """Add an operator of one's own to the table, for this process.  Raises `ValueError` where the row contradicts itself, or its name
    has a meaning."""
    wrong = (
        "its name is no identifier in small letters" if not re.fullmatch(r"[a-z][a-z0-9_]*", row.name)
        else "its name is taken" if row.name in OPS or row.name in REDUCTIONS or row.name in SCANS or row.name in CONSTANTS
        else f"there is no rule {row.rule}" if row.rule not in RULES
        else "`grad` has not an expression for each operand" if len(row.grad) != row.arity
        else "`host` says no value on numbers" if not callable(row.host)
        else next((f"{t} has no spelling" for t in ("cpp", "cuda", "triton") if not any(map(row.spell(t).text, ("float", "bool")))), "")
    )  # fmt: skip
    if wrong:
        raise ValueError(f"the operator `{row.name}`: {wrong}")
    OPS[row.name] = row
    REGISTERED.add(row.name)


def unregister(name: str) -> None:
    """Take an operator that was registered out of the table."""
    REGISTERED.remove(name)
    del OPS[name]


__all__ = [
    "CALL", "CODES", "CONSTANTS", "CONVERTS", "LOOSE", "MODES", "OPS", "PRODUCT", "REDUCTIONS", "REGISTERED", "ROWS", "SCANS", "SUM",
    "UNARY", "Brief", "Eager", "Errors", "Move", "Notation", "Op", "Reduction", "Sign", "Spell", "PAIRS", "code_name", "modes", "register",
    "BY_CHANCE", "tree_depth", "unregister", "value_name",
]  # fmt: skip
