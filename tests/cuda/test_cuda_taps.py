"""Neighbours that CUDA's maps read as vectors: the emitted kernels, run on the CPU, beside what the places mean."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kgen import check, grad, pipeline, syntax
from kgen.backends import backend, launches
from kgen.parts import over_parts
from kgen.passes import Map
from kgen.runtime import maps
from kgen.runtime.kernel import Kernel, read_spec
from tests.cuda.emulated import Emulated
from tests.cuda.test_cuda_source import on_the_cpu

#: Each with its shifts along N and M.
LINE = """line(x: T[..., N], w: T[N]) -> y: T[..., N]

y = x[N = index[N] - 3 else 0] + 2 * x[N = index[N] + 1 else 5] - w * x[N = index[N] + 9 else -1] + x[N = index[N] - 16 else 0]
"""
PLANE = """plane(x: T[..., M, N]) -> (y: T[..., M, N], z: T[..., M, N])

y = x[M = index[M] - 1 else 3] + 2 * x[M = index[M] + 2, N = index[N] - 5 else 0] - 4 * x
z = x[M = index[M] + 1, N = index[N] + 1 else 7] * index[N] + x[N = index[N] - 8 else 1]
"""
#: By numbers of the call, and round the end.
MOVED = """by_number(x: T[..., M, N], s: int) -> y: T[..., M, N]

y = x[N = index[N] + s else 5] - 2 * x[M = index[M] - s, N = index[N] + 1 else 0] + 4 * x[N = (index[N] + 3 - s) % N] + x[M = (index[M] - 1) % M]
"""
FIVE = "five(x: T[..., M, N]) -> y: T[..., M, N]\n\ny = x" + "".join(f" + x[N = index[N] + {by} else 0]" for by in (-3, -2, -1, 1)) + "\n"
#: Values that are computed at another place, of what lies there and at places from there on.
DERIVED = """derived(x: T[..., N], w: T[N], s: f32[M, N]) -> (y: T[..., N], t: f32[M, N])

h = 2 * x - w
y = h[N = index[N] - 2 else 9] + (x[N = index[N] + 1 else 3] * w)[N = index[N] - 1 else 4]
t = s[M = index[M] + 1 else -inf]
"""
#: Windows: places in steps along other dims, and several elements at one place.
WINDOW = """window(x: T[..., M, N]) -> (y: T[..., P, Q], z: T[..., P, N], u: T[..., R, S]) where P = (M + 1) // 2, Q = N // 3 + 1, R = 2*M + 3, S = 3*N

y = x[M = 2*index[P] - 1, N = 3*index[Q] - 2 else -7] + 2 * x[M = 2*index[P], N = 3*index[Q] + 1 else 3] - x[M = 2*index[P] - 1, N = 3*index[Q] else 0]
z = x[M = 2*index[P] + 1 else 5] + 2 * x[M = 2*index[P] - 1, N = index[N] - 2 else 1]
u = x[M = (index[R] + 1) // 2 - 1, N = (index[S] - 2) // 3 else 4] - 2 * x[M = (index[R] - 3) // 2, N = index[S] // 3 + 1 else 0]
"""
#: Along a tensor's last dim, by the index of rows.
ACROSS = """across(x: T[M, K], w: T[N]) -> y: T[N, M]

y = w + x[K = 2*index[N] + 3 else 1] - x[K = 2*index[N] - 2 else 5]
"""
#: Windows of so many elements that a thread of Triton's takes few.
POOL = """pool(x: T[..., M, N], w: T[..., P, Q]) -> y: T[..., P, Q] where P = M // 2 + 1, Q = N // 3 + 1, I = 5, J = 4

y = w + sum[I, J](x[M = 2*index[P] + index[I] - 3, N = 3*index[Q] + index[J] - 1 else 2])
"""
#: Beside an operand of an element's own.
WEIGHED = """weighed(x: T[..., M, N], w: T[..., P, Q]) -> y: T[..., P, Q] where P = (M + 1) // 2, Q = N // 3 + 1

y = w * x[M = 2*index[P] - 1, N = 3*index[Q] - 2 else -7] + index[P]
"""
ALONG = """along(x: T[..., N]) -> y: T[..., Q] where Q = N // 3 + 1

y = x[N = 3*index[Q] - 2 else -7] - x[N = 3*index[Q] else 1]
"""
#: Whose neighbours read the same of a line.
DILATED = "dilated(x: T[..., N]) -> y: T[..., Q] where Q = N + 1\n\ny = max({})\n".format(
    ", ".join(f"x[N = index[Q] + {k} - 5 else -inf]" for k in (0, 3, 6, 9))
)


#: Along rows and across them, of which a thread takes neighbours in several rows: of four in steps of one; of three in steps of
#: two along three dims, three apart along two of them; of two in steps of three, whose dims between no window runs along.
SQUARE = "square(x: T[..., M, N]) -> y: T[..., P, Q] where P = M - 1, Q = N - 1, I = 4, J = 4\n\ny = max[I, J](x[M = index[P] + index[I] - 1, N = index[Q] + index[J] - 1 else -inf])\n"
CUBE = "cube(x: T[..., L, M, N]) -> y: T[..., O, P, Q] where O = (L - 1) // 2, P = (M - 1) // 2, Q = (N - 1) // 2, I = 3, J = 3, K = 3\n\ny = sum[I, J, K](x[L = 2*index[O] + 3*index[I] - 2, M = 2*index[P] + index[J] - 2, N = 2*index[Q] + 3*index[K] - 2 else 0])\n"
APART = "apart(x: T[..., L, M, N]) -> y: T[..., O, M, Q] where O = L // 3, Q = N // 3 + 1\n\ny = max(x[L = 3*index[O], N = 3*index[Q] - 2 else -7], x[L = 3*index[O] + 1, N = 3*index[Q] else 1])\n"


def square(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.max_pool2d(x[None], 4, 1, 1)[0]


def cube(x: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (2, 8) * 3)
    parts = [padded[..., i : i + 2 * o : 2, j : j + 2 * p : 2, k : k + 2 * q : 2] for o, p, q in [[(n - 1) // 2 for n in x.shape[-3:]]] for i in (0, 3, 6) for j in (0, 1, 2) for k in (0, 3, 6)]
    return torch.stack(parts).sum(0)


def apart(x: torch.Tensor) -> torch.Tensor:
    o, q = torch.arange(x.shape[-3] // 3), torch.arange(x.shape[-1] // 3 + 1)
    columns = x.transpose(-3, -2)  # M, L, N

    def at(l: torch.Tensor, n: torch.Tensor, fill: float) -> torch.Tensor:
        inside = ((l >= 0) & (l < x.shape[-3]))[:, None] & ((n >= 0) & (n < x.shape[-1]))
        found = columns[..., l.clamp(0, x.shape[-3] - 1)[:, None], n.clamp(0, x.shape[-1] - 1)]
        return torch.where(inside, found, fill).transpose(-3, -2)

    return torch.maximum(at(3 * o, 3 * q - 2, -7), at(3 * o + 1, 3 * q, 1))


def dilated(x: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (5, 5), value=-torch.inf)
    return torch.stack([padded[..., 3 * k : 3 * k + x.shape[-1] + 1] for k in range(4)]).amax(0)


def shifted(x: torch.Tensor, fill: float, **by: int) -> torch.Tensor:
    """The elements so far along the last dim (N) and the last but one (M)."""
    found = torch.full_like(x, fill)
    size = {"N": x.shape[-1], "M": x.shape[-2] if x.dim() > 1 else 1}
    ways = {d: (max(0, -by.get(d, 0)), min(size[d], size[d] - by.get(d, 0))) for d in size}
    if all(low < high for low, high in ways.values()):
        (a, b), (c, d) = ways["N"], ways["M"]
        n, m = by.get("N", 0), by.get("M", 0)
        if x.dim() > 1:
            found[..., c:d, a:b] = x[..., c + m : d + m, a + n : b + n]
        else:
            found[a:b] = x[a + n : b + n]
    return found


def line(x: torch.Tensor, w: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"y": shifted(x, 0, N=-3) + 2 * shifted(x, 5, N=1) - w * shifted(x, -1, N=9) + shifted(x, 0, N=-16)}


def derived(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> dict[str, torch.Tensor]:
    h = shifted(2 * x - w, 9, N=-2) + shifted(shifted(x, 3, N=1) * w, 4, N=-1)
    return {"y": h, "t": shifted(s, -torch.inf, M=1)}


def five(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"y": sum(shifted(x, 0, N=by) for by in range(-3, 2))}


def moved(x: torch.Tensor, s: int) -> dict[str, torch.Tensor]:
    n, m = x.shape[-1], x.shape[-2]
    far = max(-n, min(n, s))
    y = shifted(x, 5, N=far) - 2 * shifted(x, 0, M=-max(-m, min(m, s)), N=1)
    return {"y": y + 4 * x.roll((s - 3) % n if n else 0, -1) + x.roll(1, -2)}


def plane(x: torch.Tensor) -> dict[str, torch.Tensor]:
    at = torch.arange(x.shape[-1], dtype=x.dtype)
    y = shifted(x, 3, M=-1) + 2 * shifted(x, 0, M=2, N=-5) - 4 * x
    return {"y": y, "z": shifted(x, 7, M=1, N=1) * at + shifted(x, 1, N=-8)}


def placed(x: torch.Tensor, m: torch.Tensor, n: torch.Tensor, fill: float) -> torch.Tensor:
    """The elements at some places along M and N, `fill` where one lies outside."""
    inside = ((m >= 0) & (m < x.shape[-2]))[:, None] & ((n >= 0) & (n < x.shape[-1]))
    found = x[..., m.clamp(0, x.shape[-2] - 1), :][..., n.clamp(0, x.shape[-1] - 1)]
    return torch.where(inside, found, fill)


def window(x: torch.Tensor) -> dict[str, torch.Tensor]:
    rows, columns = x.shape[-2:]
    p, q, r, s, n = (torch.arange(k) for k in ((rows + 1) // 2, columns // 3 + 1, 2 * rows + 3, 3 * columns, columns))
    y = placed(x, 2 * p - 1, 3 * q - 2, -7) + 2 * placed(x, 2 * p, 3 * q + 1, 3) - placed(x, 2 * p - 1, 3 * q, 0)
    u = placed(x, (r + 1) // 2 - 1, (s - 2) // 3, 4) - 2 * placed(x, (r - 3) // 2, s // 3 + 1, 0)
    return {"y": y, "z": placed(x, 2 * p + 1, n, 5) + 2 * placed(x, 2 * p - 1, n - 2, 1), "u": u}


def pool(x: torch.Tensor, w: torch.Tensor) -> dict[str, torch.Tensor]:
    p, q = (torch.arange(n) for n in w.shape[-2:])
    return {"y": w + sum(placed(x, 2 * p + i - 3, 3 * q + j - 1, 2) for i in range(5) for j in range(4))}


def weighed(x: torch.Tensor, w: torch.Tensor) -> dict[str, torch.Tensor]:
    p, q = (torch.arange(k) for k in w.shape[-2:])
    return {"y": w * placed(x, 2 * p - 1, 3 * q - 2, -7) + p[:, None]}


def along(x: torch.Tensor) -> dict[str, torch.Tensor]:
    m, q = torch.arange(x.shape[-2]), torch.arange(x.shape[-1] // 3 + 1)
    return {"y": placed(x, m, 3 * q - 2, -7) - placed(x, m, 3 * q, 1)}


def across(x: torch.Tensor, w: torch.Tensor) -> dict[str, torch.Tensor]:
    n, m = torch.arange(w.shape[0]), torch.arange(x.shape[0])
    return {"y": (w + placed(x, m, 2 * n + 3, 1) - placed(x, m, 2 * n - 2, 5)).T}


def laid(shape: tuple[int, ...], dtype: torch.dtype, chance: random.Random) -> torch.Tensor:
    """A tensor of small integers, somewhere among elements that are not its own, in one of several layouts."""
    way = chance.choice(("dense", "dense", "apart", "turned", "rows", "off"))
    room = [n + (way in ("apart", "rows") and d == len(shape) - 2 or way == "off" and d == len(shape) - 1) for d, n in enumerate(shape)]
    order = [*range(len(shape))]
    if way == "turned":
        chance.shuffle(order)
    many = 1
    for n in room:
        many *= n
    memory = torch.full((many + 40,), torch.nan, dtype=dtype)
    first = chance.choice((8, 8, 16, 9, 12))
    whole = memory[first : first + many].view([room[d] for d in order]).permute([order.index(d) for d in range(len(shape))])
    view = whole[tuple(slice(0, n) for n in shape)]
    view.copy_(torch.randint(-8, 8, shape))
    if way == "apart" and len(shape) > 1 and chance.random() < 0.5:
        view = view[..., :1].expand(shape) if chance.random() < 0.5 else view[..., :1, :].expand(shape)
    return view


def cases(rank: int, dtype: torch.dtype, count: int, seed: int) -> Iterator[tuple[Any, ...]]:
    chance = random.Random(seed)
    lengths = (1, 2, 3, 7, 8, 16, 24, 25, 40, 64, 136, 1032)
    for _ in range(count):
        shape = tuple(chance.choice((1, 2, 3, 5)) for _ in range(rank)) + (chance.choice(lengths),)
        x = laid(shape, dtype, chance)
        yield (x, laid(shape[-1:], dtype, chance)) if rank < 2 else (x,)


def pools(dtype: torch.dtype, count: int, seed: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Arguments of POOL."""
    chance = random.Random(seed)
    for (x,) in cases(2, dtype, count, seed):
        yield x, laid((*x.shape[:-2], x.shape[-2] // 2 + 1, x.shape[-1] // 3 + 1), dtype, chance)


def hold(text: str, meaning: Any, calls: list[tuple[Any, ...]], folder: Path) -> None:
    """Hold what a kernel gives in each of some calls to what its text means."""
    launcher = Emulated(text, folder, *calls)
    for args in calls:
        want = meaning(*(t.double() if isinstance(t, torch.Tensor) else t for t in args))
        for name, found in launcher(*args).items():
            assert torch.equal(found, want[name].to(found.dtype)), (name, [(t.shape, t.stride(), t.data_ptr() % 16) if isinstance(t, torch.Tensor) else t for t in args])


@pytest.mark.parametrize("text", [LINE, PLANE, DERIVED, MOVED, WINDOW], ids=["line", "plane", "derived", "moved", "window"])
def test_neighbours_are_taps_of_a_map(text: str) -> None:
    kernel = check.check(syntax.parse(text, "taps.k"))
    passes = pipeline.scheduled(kernel, kernel.bindings()[0], backend("cuda").rides, True, True).passes
    assert {type(p) for p in passes} == {Map}
    assert not [let for p in passes for let in p.lets if let.expr.name == "gather" or let.expr.name == "where" and text != DERIVED]


def test_shifts_along_a_line(tmp_path: Path) -> None:
    calls = [(torch.randint(-8, 8, (n,)).float(), torch.randint(-8, 8, (n,)).float()) for n in (5, 16, 37, 515)]
    hold(LINE, line, [*calls, *cases(1, torch.float32, 6, 0)], tmp_path)


def test_shifts_in_a_plane(tmp_path: Path) -> None:
    hold(PLANE, plane, [*cases(2, torch.bfloat16, 8, 1)], tmp_path)


def test_windows_in_a_plane(tmp_path: Path) -> None:
    hold(WINDOW, window, [*cases(2, torch.bfloat16, 8, 1), (torch.zeros(0, 4, 5),), (torch.randint(-8, 8, (3, 9, 40)).double(),)], tmp_path)


def test_windows_along_a_last_dim_that_lies_across(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few elements, and as threads take rows of them one below the other: what lies outside has the fill there too."""
    calls = [(torch.randint(-8, 8, (5, k)).float(), torch.randint(-8, 8, (n,)).float()) for k, n in ((3, 37), (40, 16), (1, 9))]
    calls += [(x.double().T.contiguous().T, w.double()) for x, w in calls[:2]]
    for many in (maps.MAP_MANY, 1):
        monkeypatch.setattr(maps, "MAP_MANY", many)
        maps.cached_plan.cache_clear()
        (folder := tmp_path / str(many)).mkdir()
        hold(ACROSS, across, calls, folder)
    maps.cached_plan.cache_clear()


def test_vectors_of_several_pieces_of_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As threads take them of many elements, or of rows one below the other; the third call's rows begin within a vector."""
    monkeypatch.setattr(maps, "MAP_MANY", 1)
    maps.cached_plan.cache_clear()
    calls = [(torch.randint(-8, 8, shape).to(torch.bfloat16),) for shape in ((3, 8, 128), (1, 4, 192), (2, 3, 44))]
    for text, meaning in ((PLANE, plane), (FIVE, five)):
        (folder := tmp_path / meaning.__name__).mkdir()
        emulated = Emulated(text, folder, *calls)
        assert {e.split(", ")[-1] for e in emulated.expressions} >= {"4>" if meaning is plane else "8>", "1>"}
        hold(text, meaning, calls, folder)
    maps.cached_plan.cache_clear()


def test_windows_of_several_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As threads take them of many elements: of rows one below the other, of which the last may be fewer, or, where windows go along a row
    alone, of rows that are a multiple of 4 or 8, wherever these lie."""
    monkeypatch.setattr(maps, "MAP_MANY", 1)
    maps.cached_plan.cache_clear()
    whole = [(torch.randint(-8, 8, shape).float(),) for shape in ((4, 5, 7), (3, 6, 9), (2, 4, 3, 6))]
    turned = (torch.randint(-8, 8, (7, 8, 5)).float().permute(2, 1, 0),)
    weights = [(*args, torch.randint(-8, 8, (*w.shape[:-2], (w.shape[-2] + 1) // 2, w.shape[-1] // 3 + 1)).float()) for args in whole for w in args]
    for text, meaning, calls, ways in (
        (WINDOW, window, [*whole, turned], {"8>", "4>", "1>"}),
        (WEIGHED, weighed, weights, {"8>"}),
        (ALONG.rstrip() + " + 0 * index[Q]\n", along, [*whole, turned, (torch.randint(-8, 8, (3, 8, 5)).float(),)], {"8>", "4>", "1>"}),
    ):
        (folder := tmp_path / meaning.__name__).mkdir()
        assert {e.split(", ")[-1] for e in Emulated(text, folder, *calls).expressions} == ways
        hold(text, meaning, calls, folder)
    maps.cached_plan.cache_clear()


def test_windows_of_neighbours_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As threads take them of many elements: of rows in whole aligned vectors, and of others; of results whose rows end within a vector, or
    lie across."""
    monkeypatch.setattr(maps, "MAP_MANY", 1)
    maps.cached_plan.cache_clear()
    x = torch.randint(-8, 8, (3, 9, 24)).float()
    x[0, 3, 5], x[1, 0, 0] = torch.nan, -torch.inf
    given = [x, x[..., :16], x[..., 1:], x[..., :7], x[:, 1:2, 2:6], x.permute(0, 2, 1), x.bfloat16(), x.bfloat16()[..., 3:], x.double()]
    calls = [(one,) for one in given]
    for text, meaning in ((ALONG, lambda x: along(x)["y"]), (DILATED, dilated)):
        (folder := tmp_path / text.partition("(")[0]).mkdir()
        emulated = Emulated(text, folder, *calls)
        assert {e.split(", ")[2] for e in emulated.expressions} >= {"2", "4"}
        for args in calls:
            (found,) = emulated(*args).values()
            torch.testing.assert_close(found, meaning(args[0].double()).to(found.dtype), rtol=0, atol=0, equal_nan=True)
    maps.cached_plan.cache_clear()


@pytest.mark.parametrize("rows", [2, 4, 8])
def test_windows_of_neighbours_in_several_rows(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As threads take them of many elements, of each number of rows: of rows in whole aligned vectors, and of others; results end within a
    vector, and within a thread's rows."""
    monkeypatch.setattr(maps, "MAP_MANY", 1)
    monkeypatch.setattr(launches, "WINDOW_ROWS_ALONG", ((64, rows),))
    maps.cached_plan.cache_clear()
    x = torch.randint(-8, 8, (2, 9, 13, 24)).float()
    x[0, 3, 5, 7], x[1, 0, 0], x[0, 8, 12, 23] = torch.nan, -torch.inf, torch.inf
    given = [x, x[..., :8], x[..., 1:], x[..., :7], x[:, 1:5, 2:6, 4:8], x.permute(0, 1, 3, 2), x.permute(0, 2, 1, 3), x.bfloat16(), x.bfloat16()[..., 3:], x.double()]
    for text, meaning in ((SQUARE, square), (CUBE, cube), (APART, apart)):
        calls = [(one[0] if meaning is square else one,) for one in given]
        (folder := tmp_path / meaning.__name__).mkdir()
        emulated = Emulated(over_parts(check.check(syntax.parse(text, "windows.k"))).file.source.text, folder, *calls)
        ways = {tuple(e.rstrip(">").split(", ")[2::3]) for e in emulated.expressions}
        assert ways >= ({("4", "1"), ("2", "1")} if meaning is apart else {("4", str(rows)), ("2", str(rows))}), ways
        for args in calls:
            (found,) = emulated(*args).values()
            torch.testing.assert_close(found, meaning(args[0].double()).to(found.dtype), rtol=0, atol=0, equal_nan=True)
    maps.cached_plan.cache_clear()


def test_shifts_by_numbers_of_the_call(tmp_path: Path) -> None:
    chance = random.Random(8)
    far = (0, 1, -3, 8, 16, -24, 1000, 2**63 - 1, -(2**63))
    hold(MOVED, moved, [(x, chance.choice(far)) for (x,) in cases(2, torch.bfloat16, 14, 21)], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_shifts_by_numbers_in_any_layout(dtype: torch.dtype, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    given = [(x, chance.choice((0, 1, 2, 3, 5, 8, -1, -7, -8, 30, -500))) for (x,) in cases(2, dtype, 40, 30 + seed)]
    hold(MOVED, moved, given, tmp_path)


@pytest.mark.slow
def test_values_at_other_places(tmp_path: Path) -> None:
    chance, calls = random.Random(4), []
    for n in (1, 8, 24, 41):
        calls.append(tuple(laid(shape, torch.float32, chance) for shape in ((3, n), (n,), (2, n))))
    hold(DERIVED, derived, calls, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_gradients_of_a_convolution(dtype: torch.dtype, tmp_path: Path) -> None:
    spec = check.check(syntax.parse(*read_spec("causal_conv4")))
    kernel = over_parts(grad.backward(spec).kernel)
    torch.manual_seed(0)
    sizes = {"C": 5, "N": 40}
    given = [torch.randn([2 if d == "..." else sizes[d] for d in p.dims or ()]).to(dtype) for p in kernel.params]
    found = Emulated(kernel.file.source.text, tmp_path, tuple(given))(*given)
    far = 1e-5 if dtype is torch.float32 else 2e-2
    for r, w in zip(kernel.results, Kernel(kernel)(*given, target="torch"), strict=True):
        torch.testing.assert_close(found[r.name], w, rtol=far, atol=far)


@pytest.mark.slow
@pytest.mark.parametrize("many", [1, 1 << 20])
def test_the_gradients_of_a_maximum_of_windows(many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small integers, many of them alike, and NaN; row by row, and several rows at a time."""
    monkeypatch.setattr(maps, "MAP_MANY", many)
    maps.cached_plan.cache_clear()
    kernel = over_parts(grad.backward(check.check(syntax.parse(*read_spec("max_pool2d")))).kernel)
    x = torch.randint(-3, 4, (2, 9, 14)).float()
    x[0, 3, 4], x[1, 0, :4] = torch.nan, -torch.inf
    given = {"x": x, "dy": torch.randint(-8, 8, (2, 5, 7)).float()}
    args = tuple(given[p.name] for p in kernel.params)
    found = Emulated(kernel.file.source.text, tmp_path, args)(*args)["dx"]
    torch.testing.assert_close(found, Kernel(kernel)(*args, target="torch"), rtol=1e-6, atol=1e-6, equal_nan=True)
    maps.cached_plan.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("text", "meaning", "rank"), [(LINE, line, 0), (LINE, line, 1), (PLANE, plane, 1), (PLANE, plane, 2), (WINDOW, window, 2)])
def test_shifts_of_any_layout(text: str, meaning: Any, rank: int, dtype: torch.dtype, seed: int, tmp_path: Path) -> None:
    if rank == 1 and meaning is plane:
        rank = 3
    hold(text, meaning, [*cases(rank, dtype, 40, 100 * rank + seed)], tmp_path)


def passed(t: torch.Tensor) -> tuple[Any, Any]:
    """A tensor as an entry of C takes it."""
    return ctypes.c_void_p(t.data_ptr()), (ctypes.c_longlong * t.dim())(*t.stride())


@pytest.mark.slow
def test_a_written_files_host_part_launches_windows(tmp_path: Path) -> None:
    text = WINDOW.replace("(y: T[..., P, Q], z: T[..., P, N], u: T[..., R, S])", "y: T[..., P, Q]").partition("z = ")[0].replace(", R = 2*M + 3, S = 3*N", "")
    entry = on_the_cpu(backend("cuda").render(check.check(syntax.parse(text, "taps.k"))), tmp_path).window_f32
    for (x,) in cases(2, torch.float32, 40, 9):
        y = window(x.double())["y"].float()
        found, strides = torch.empty_like(y), (ctypes.c_longlong * 3)(x.stride(0), 0, 0)
        reach = [ctypes.c_longlong(n) for n in (x.stride(1), x.stride(2), x.shape[1], x.shape[2])]
        operands = [ctypes.c_void_p(x.data_ptr()), strides, *passed(found), *reach]
        assert entry(3, (ctypes.c_longlong * 3)(*y.shape), *operands, None) == 0
        assert torch.equal(found, y), (x.shape, x.stride())


@pytest.mark.slow
def test_a_written_files_host_part_launches_taps(tmp_path: Path) -> None:
    entry = on_the_cpu(backend("cuda").render(check.check(syntax.parse(PLANE, "taps.k"))), tmp_path).plane_f32
    for (x,) in cases(2, torch.float32, 40, 9):
        results = {"y": torch.empty(x.shape), "z": torch.empty(x.shape)}
        operands = [a for t in (x, *results.values()) for a in passed(t)]
        assert entry(x.dim(), (ctypes.c_longlong * x.dim())(*x.shape), *operands, None) == 0
        for name, want in plane(x.double()).items():
            assert torch.equal(results[name], want.float()), (name, x.shape, x.stride())


def test_a_scan_of_neighbours(tmp_path: Path) -> None:
    """Taps and scans in one source: fuzzing found two structs of one name."""
    x = torch.randn(2, 5, 7)
    got = Emulated("f(x: T[..., M, N]) -> y: T[..., M, N]\n\ny = cumsum[M](x[M = index[M] - 2 else 0] + x)\n", tmp_path, (x,))(x)["y"]
    shifted = torch.cat([torch.zeros(2, 2, 7), x[:, :3]], 1)
    torch.testing.assert_close(got, (shifted + x).cumsum(1))


def test_rows_that_share_no_line_are_taken_one_by_one() -> None:
    """Windows three apart in steps of two: .83 of a copy on an H200, .67 by two rows; of neighbours in steps of two .88 by one row, .935 by
    four."""

    def rows(apart: int, step: int) -> int:
        read = f"x[L = {step}*index[O], M = {step}*index[P] + {apart}*index[J], N = index[Q] + index[K] else 0]"
        text = f"f(x: T[L, M, N]) -> y: T[O, P, Q] where O = L // {step}, P = M // {step}, Q = N - 2, J = 3, K = 9\n\ny = sum[J, K]({read})\n"
        (unit,) = backend("cuda").layout(over_parts(check.check(syntax.parse(text, "f.k"))))
        assert unit.along >= 0 and unit.row >= 0
        return launches.window_rows(unit.taps, unit.row >= 0, unit.divides, unit.along >= 0, unit.shares)

    assert [rows(apart, step) for apart, step in ((1, 1), (1, 2), (3, 3), (2, 2), (3, 2), (1, 3))] == [4, 4, 4, 4, 1, 1]


def test_neighbours_share_lines_that_are_not_long() -> None:
    """Nor so many windows that a thread has no registers for them: then it takes one element of each of its rows."""

    def shares(places: str) -> bool:
        text = f"shared(x: T[H, W]) -> y: T[P, Q] where P = H // 2, Q = W // 2, I = 11\n\ny = {places}\n"
        return backend("cuda").layout(over_parts(check.check(syntax.parse(text, "shared.k"))))[0].along >= 0

    assert shares("x[H = 2*index[P], W = index[Q] - 200 else 0] + x[H = 2*index[P], W = index[Q] else 0]")
    assert not shares("x[H = 2*index[P], W = index[Q] - 5000 else 0] + x[H = 2*index[P], W = index[Q] else 0]")
    assert not shares("sum[I](x[H = 2*index[P], W = 1000*index[Q] + index[I] else 0])")
    assert not shares("sum[I](" + " + ".join(f"x[H = 2*index[P] + index[I], W = index[Q] + {k} else 0]" for k in range(11)) + ")")
    assert not shares("x[H = 2*index[P], W = index[Q] + 1 else 0] + index[Q]")


def test_windows_of_a_tensor_are_counted_from_one_pointer() -> None:
    """Not where places are quotients, nor where windows of a tensor go by several steps along a dim."""

    def counted(places: str) -> tuple[int, int]:
        text = f"counted(x: T[H, W]) -> y: T[P, Q] where P = H // 2, Q = W // 2\n\ny = {places}\n"
        source = backend("cuda").render(check.check(syntax.parse(text, "counted.k")))
        made = source[source.index("counted_windows(") : source.index("counted_vector(")]
        return made.count("anchored("), made.count("(layout, x_from, ")

    two = "max(x[H = 2*index[P] - 1, W = 2*index[Q] else -inf], x[H = 2*index[P], W = 2*index[Q] + 1 else -inf])"
    assert counted(two) == (1, 1)  # lines that both read
    assert counted(f"{two} + index[P]") == (1, 2)
    assert counted("x[H = (index[P] + 1) // 2, W = index[Q] else 0] + x[H = index[P], W = index[Q] else 0]") == (0, 0)
    assert counted("x[H = 2*index[P], W = index[Q] else 0] + x[H = index[P], W = index[Q] + 1 else 0]") == (0, 0)


#: Places along dims without elements: of an element, summed, and of windows.
EMPTY = ("f(x: T[N], w: T[M]) -> y: T[M]\n\ny = w * (2 + x[N = index[M] else 3])\n",
         "f(x: T[N], w: T[M]) -> y: T[]\n\ny = sum[M](w * (2 + x[N = index[M] else 3]))\n",
         "f(x: T[N, 2], w: T[M]) -> y: T[M] where I = 3\n\ny = w * sum[I](x[N = index[M] + index[I] - 1, 2 = 1 else 5] / 3)\n")  # fmt: skip


@pytest.mark.parametrize("text", EMPTY)
def test_of_none_there_is_what_stands_outside(text: str, tmp_path) -> None:
    calls = [(torch.ones(*(0, 2)[: 1 + (text is EMPTY[2])]), torch.rand(m)) for m in (3, 2000)]
    kernel = Emulated(text, tmp_path, *calls)
    for x, w in calls:
        torch.testing.assert_close(kernel(x, w)["y"], (w * 5).sum() if text is EMPTY[1] else w * 5)
