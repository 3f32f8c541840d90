"""What a kernel's results should be, to hold what is timed against: evaluated by torch in pieces, so that it fits beside large tensors.

In: a kernel and its arguments.  Out: a `Reference`.  A piece is a slice along one dim that nothing reduces, scans, searches, picks
along, counts or indexes (rows, mostly) and that every result has; where there is none (a loss over all elements), all is one piece.  All
pieces are evaluated up to COMPARED elements; of more, SAMPLES of them spread from the first to the last.  On a CPU both are a sixteenth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kgen.check import Kernel, Parameter, ResultDecl
from kgen.errors import KgenError
from kgen.ops import OPS, REDUCTIONS
from kgen.runtime.coded import packed, value
from kgen.runtime.evaluate import Evaluator
from kgen.scanned import over
from kgen.searches import SEARCHES
from kgen.types import DTYPES, ELLIPSIS, axes, is_float

PIECE = 1 << 24  # elements of the largest operand that are evaluated at once
COMPARED = 1 << 28  # elements up to which every one is compared
SAMPLES = 16
ROUNDED = 1 << 20  # elements of which it is counted how many a 16-bit result has rounded wrong
CLOSE = 0.05  # of the largest result: how far another library's formula may be off and still be the same
OTHERS = 0.05  # of the elements, where a formula chooses: how many may be chosen otherwise by another library's roundings
DOUBTED = 64  # places along a piece's dim that are held to the derived bound, of those where a target differs from the reference

Piece = tuple[str, int, int, tuple[Any, ...]]  # a dim ("": all is one), a place along it, a length, and the results there


class Reference:
    """The results of `kernel` on `given`: computed in f32 (f64 for f64) and rounded once, as kernels do."""

    def __init__(self, kernel: Kernel, given: dict[str, Any]):
        """`given` are the kernel's arguments by name.  The formula's own results are computed here once, in pieces along a dim
        where the tensors are large."""
        self.kernel, self.given = kernel, given
        self.whole = whole = Evaluator(kernel, given)
        dtypes = [whole.dtype(r.dtype) for r in kernel.results]
        self.counts = [whole.count(r.dims) for r in kernel.results]
        #: Bytes of the results.
        self.bytes = sum(n * dtype.itemsize for n, dtype in zip(self.counts, dtypes, strict=True))
        self.largest = max((given[p.name].numel() for p in kernel.params if p.is_tensor), default=1)
        self.pieces: list[Piece] = []
        for dim, start, length in _cuts(kernel, whole, self.largest):
            part = given if not dim else {name: _cut(kernel, whole, name, x, dim, start, length) for name, x in given.items()}
            self.pieces.append((dim, start, length, tuple(r.clone() for r in Evaluator(kernel, part).run())))
        self.scales = [
            max((float(_values(p[3][k]).abs().nan_to_num(0, 0, 0).max()) for p in self.pieces if p[3][k].numel()), default=0.0)
            for k in range(len(kernel.results))
        ]

        self.exact: Piece | None = None
        if any(dtype.is_floating_point and dtype.itemsize == 2 for dtype in dtypes):
            dim, start, length = _cuts(kernel, whole, self.largest, ROUNDED, ROUNDED)[0]
            if dim or self.largest <= 4 * ROUNDED:
                part = given if not dim else {name: _cut(kernel, whole, name, x, dim, start, length) for name, x in given.items()}
                self.exact = dim, start, length, tuple(r.clone() for r in Evaluator(kernel, part, "exact").run())

    def misrounded(self, got: Any) -> float | None:
        """The share of 16-bit results that are not the exact ones rounded once, of the first ROUNDED or so; None where there are none."""
        found = list(got) if isinstance(got, (tuple, list)) else [got]
        wrong = count = 0
        if self.exact is not None:
            dim, start, length, results = self.exact
            for r, x, y in zip(self.kernel.results, found, results, strict=False):
                if x.dtype == y.dtype and y.dtype.is_floating_point and y.dtype.itemsize == 2:
                    x = (x.narrow(_axis(r, dim), start, length) if dim else x).reshape(y.shape)
                    wrong += int(((x != y) & ~(x.isnan() & y.isnan())).sum())
                    count += y.numel()
        return wrong / count if count else None

    def refuse(self, target: str, got: list[Any]) -> None:
        """Raise `KgenError` for what is plainly wrong: further off than a unit of the result's dtype and 64 units of the dtype computed in,
        these relative to the largest element (of what is reduced at least to 1, since its terms may cancel).  Where a formula casts to
        a float dtype, a value may round the other way, and the first unit is relative to the largest too.  What differs by more may
        do so still (a choice that roundings decide, an integer beside a half): the bound that `kgen check` derives says so."""
        import torch

        casts = any(v.op == "cast" and is_float(v.type) for v in self.kernel.values)
        for k, (r, scale) in enumerate(zip(self.kernel.results, self.scales, strict=True)):
            scale = scale if self.counts[k] >= self.largest else max(scale, 1.0)
            for piece, x, y in self._pairs(k, got[k]):
                relative = absolute = 0.0
                if y.dtype.is_floating_point:
                    eps, least = (0.5, 1.0) if packed(y.dtype) else (torch.finfo(y.dtype).eps, torch.finfo(y.dtype).smallest_normal)
                    noise = 64 * torch.finfo(torch.float64 if y.dtype == torch.float64 else torch.float32).eps
                    relative = noise + eps
                    absolute = (relative if casts else noise) * scale + least * eps
                same = x.dtype == y.dtype and torch.isclose(_values(x), _values(y), rtol=relative, atol=absolute, equal_nan=True)
                if same is False or not bool(same.all()) and not self._within(target, k, piece, x, same):
                    raise KgenError(
                        f"{self.kernel.name}: {target} and PyTorch differ in {r.name}", help=f"`kgen check` says where ({self.kernel.name})"
                    )

    def _within(self, target: str, k: int, piece: Piece, x: Any, same: Any) -> bool:
        """Whether result `k` of a piece, `x`, lies within its derived bound where it is not the `same` as the reference's: at DOUBTED of
        those places along the piece's dim, from the first to the last.  What has no bound there is not held."""
        from kgen.testing.bounds import Analysis
        from kgen.testing.checks import Report, held

        dim, start, length, _ = piece
        if not dim:
            if self.largest > PIECE // 16:
                return False
            given = self.given
        else:
            axis = _axis(self.kernel.results[k], dim) % same.dim()
            places = (~same).transpose(0, axis).flatten(1).any(1).nonzero().flatten() if same.dim() > 1 else (~same).nonzero().flatten()
            places = places[:: -(-len(places) // DOUBTED)]
            x = x.index_select(axis, places)
            part = {name: _cut(self.kernel, self.whole, name, v, dim, start, length) for name, v in self.given.items()}
            given = {name: _cut(self.kernel, self.whole, name, v, dim, places, length) for name, v in part.items()}
        given = {name: v.cpu() if hasattr(v, "cpu") else v for name, v in given.items()}
        want = Analysis(self.kernel, given, target).results()[k]
        return held(x.cpu().reshape(want.exact.shape), want, None, Report(self.kernel.name, target)) is None

    def alike(self, got: Any) -> str:
        """Why the results of another library (bytes, where they are packed) are not those of the formula; "" where they are, roughly.  A
        formula that chooses (what a comparison or a search says) may choose otherwise in a few places, by the roundings of the other."""
        import torch

        found = list(got) if isinstance(got, (tuple, list)) else [got]
        if len(found) < len(self.counts) or any(x.numel() != n for x, n in zip(found, self.counts, strict=False)):
            return "its results have other sizes"
        chooses = any(v.op in SEARCHES or v.op in OPS and OPS[v.op].rule == "compare" for v in self.kernel.values)
        for k, scale in enumerate(self.scales):
            for _, x, y in self._pairs(k, found[k]):
                x = x.view(y.dtype) if packed(y.dtype) and x.dtype == torch.uint8 else x
                other = ~((_values(x) - _values(y)).abs().nan_to_num(0) <= CLOSE * max(scale, 1e-30))
                if int(other.sum()) > (OTHERS * other.numel() if chooses else 0):
                    return f"its {self.kernel.results[k].name} is another"
        return ""

    def _pairs(self, k: int, got: Any) -> Iterator[tuple[Piece, Any, Any]]:
        """Each piece with that part of a result and the reference's."""
        for piece in self.pieces:
            dim, start, length, results = piece
            x = got.narrow(_axis(self.kernel.results[k], dim), start, length) if dim else got
            yield piece, x.reshape(results[k].shape), results[k]


def cuttable(kernel: Kernel) -> list[str]:
    """The dims along which a slice of the operands gives that slice of the results, by the formula alone."""
    crossed: set[str] = set()
    for v in kernel.values:
        if v.attr and (v.op in REDUCTIONS or v.op in SEARCHES or v.op in ("pick", "place", "index", "size")):
            crossed |= {v.attr} if isinstance(v.attr, str) else set(v.attr)
        crossed |= {*over(v.op, v.attr)}
    shared = set.intersection(*(set(r.dims) for r in kernel.results))
    declared = [(p.dims or (), p.factors) for p in kernel.params] + [(r.dims, r.factors) for r in kernel.results]
    crossed |= {d for of in declared for axis in axes(*of) if len(axis) > 1 for d in axis}  # such an axis is not cut along one of its dims
    return [d for d in dict.fromkeys(d for r in kernel.results for d in r.dims) if d in shared - crossed]


def _cuts(kernel: Kernel, whole: Evaluator, largest: int, piece: int = 0, compared: int = 0) -> list[tuple[str, int, int]]:
    """The pieces as (dim, start, length), of `piece` elements each; one without a dim where nothing can be cut or need be."""
    sizes = {d: whole.batch[0] if whole.batch and d == ELLIPSIS else whole.sizes.get(d, 0) for d in cuttable(kernel)}
    dim = max(sizes, key=lambda d: (sizes[d], d == ELLIPSIS), default="")
    part = 1 if str(whole.device).startswith("cuda") else 16
    piece, compared = piece or PIECE // part, compared or COMPARED // part
    if largest <= piece or not dim or sizes[dim] < 2:
        return [("", 0, 0)]
    size = sizes[dim]
    length = max(1, piece * size // largest)
    count = -(-size // length)
    if largest <= compared or count <= SAMPLES:
        return [(dim, k, min(length, size - k)) for k in range(0, size, length)]
    return [(dim, math.floor(k * (size - length) / (SAMPLES - 1)), length) for k in range(SAMPLES)]


def _values(x: Any) -> Any:
    """A tensor's elements in float64, both of each byte of one that has two in it."""
    import torch

    if not packed(x.dtype):
        return x.double()
    codes = x.contiguous().view(torch.uint8)
    return value(DTYPES["f4e2m1"], torch.stack((codes & 15, codes >> 4), -1)).double()


def _axis(declared: Parameter | ResultDecl, dim: str) -> int:
    """Which axis of a tensor is a dim: the first for leading dims, of the others counted from the end."""
    found = axes(declared.dims or (), declared.factors)
    return 0 if dim == ELLIPSIS else found.index((dim,)) - len(found)


def _cut(kernel: Kernel, whole: Evaluator, name: str, x: Any, dim: str, start: Any, length: int) -> Any:
    """What a parameter's argument has of a slice along a dim, `length` places from `start`; or at places, of which `start` is the tensor.
    `whole` says how large the dims are that the kernel's arguments share."""
    p = next(p for p in kernel.params if p.name == name)
    dims = p.dims
    if not dims or dim not in dims:
        return x
    if dim == ELLIPSIS and (x.dim() - len(axes(dims, p.factors)) + 1 < len(whole.batch) or x.shape[0] == 1 < whole.batch[0]):
        return x  # it broadcasts along that dim
    axis = _axis(p, dim)
    return x.narrow(axis, start, length) if isinstance(start, int) else x.index_select(axis, start)
