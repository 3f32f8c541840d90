"""Rows that lie side by side, of which a thread takes several abreast: what their kernels compute, run on the CPU."""

from __future__ import annotations

import re
import shutil
from itertools import chain
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.backends import backend, devices, launches  # noqa: E402
from kgen.ir import Broken  # noqa: E402
from kgen.runtime import arguments, nvrtc, rows  # noqa: E402
from kgen.runtime.verified import verify_rows  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.cuda.emulated import Emulated, for_any_rows  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

#: With a result of each row, and parameters of rows and along them; a peak and sums about it; two operands; results of rows alone; places
#: along a row; dims of rows on both sides.
NORM = """norm(x: T[M, N], w: T[N], g: T[M]) -> (y: T[M, N], m: f32[N])

mu = mean[M](x)
y = (x - mu) * rsqrt(mean[M]((x - mu)^2) + 0.1) * w + g
m = f32(mu) + w
"""
SOFTMAX = "softmax(x: T[..., M, N]) -> y: T[..., M, N]\n\ne = exp(x - max[M](x))\ny = e / sum[M](e)\n"
GRADIENT = "gradient(y: T[M, N], dy: T[M, N]) -> dx: T[M, N]\n\ndx = y * (dy - sum[M](y * dy))\n"
LENGTHS = "lengths(x: T[M, N]) -> (s: f32[N], p: i64[N])\n\ns = sqrt(f32(sum[M](x * x)))\np = argmax[M](x)\n"
PLACED = "placed(x: T[M, N]) -> y: T[M, N]\n\ny = x * (1 + index[M] % 3) - max[M](abs(x)) * (1 + index[N] % 2)\n"
#: An element of each row that is looked up, of classes that lie between other dims.
LOSS = """loss(x: T[B, C, L], t: i64[B, L]) -> (y: f32[B, L], k: i64[B, L])

m = max[C](x)
y = f32(m + log(sum[C](exp(x - m))) - x[C = t])
k = argmax[C](x)
"""


def abreast(expressions: list[str]) -> set[str]:
    """How many rows a thread takes, by launches' walks."""
    return {e.rsplit(", ", 1)[1].rstrip(">") for e in expressions if re.search(r"unsigned, 1, 0, \d+>>|u64, 1, 0, \d+>>", e)}


def given(text: str, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[tuple[torch.Tensor, ...]]:
    """Arguments of a spec whose tensors all have the first one's dims, or its last, or its first."""
    params = [p for p in kgen.loads(text).kernel.params if p.is_tensor]
    made = []
    for shape in shapes:
        sizes = {"M": shape[-2], "N": shape[-1]}
        own = [shape if len(p.dims) > 1 else (sizes[p.dims[0]],) for p in params]
        made.append(tuple((torch.randn(s) + 0.5).to(dtype) for s in own))
    return made


@pytest.mark.parametrize("dtype, side", [(torch.float32, "4"), (torch.bfloat16, "8")], ids=["f32", "bf16"])
@pytest.mark.parametrize("text", [NORM, SOFTMAX, GRADIENT, LENGTHS, PLACED], ids=["norm", "softmax", "gradient", "lengths", "placed"])
def test_rows_abreast_stay_within_their_bounds(text: str, dtype: Any, side: str, tmp_path, monkeypatch) -> None:
    """In registers, of threads alone and of many; in segments, of one and of several; of rows that fill a block and of few."""
    torch.manual_seed(0)
    shapes = [(600, 264), (512, 8), (131, 16), (1100, 40), (7, 520), (13, 24), (30, 16), (64, 72), (100, 8), (240, 40)] + ([(2, 140, 24)] if text is SOFTMAX else [])
    calls = given(text, *shapes, dtype=dtype)
    checked = kgen.loads(text).kernel
    kernel = Emulated(text, tmp_path, *calls)
    assert abreast(kernel.expressions) == {side}
    found = [kernel(*call) for call in calls]
    names = [p.name for p in checked.params if p.is_tensor]
    for call, made in zip(calls, found, strict=True):
        for r, want in zip(checked.results, Analysis(checked, dict(zip(names, call, strict=True)), "cuda").results(), strict=True):
            assert bool((made[r.name].double() - want.exact).abs().le(want.bound).all()), (r.name, call[0].shape)


@pytest.mark.parametrize("dtype, side", [(torch.float32, "4"), (torch.bfloat16, "8")], ids=["f32", "bf16"])
def test_classes_between_other_dims_are_looked_up_row_by_row(dtype: Any, side: str, tmp_path) -> None:
    """A cross-entropy of few classes and of many, whose positions have equals and NaN, some labels outside: as torch and the bounds have it."""
    torch.manual_seed(3)
    calls = []
    for b, c, n in ((2, 19, 48), (1, 64, 16), (1, 150, 16), (3, 700, 8)):
        x = torch.randn(b, c, n).mul(3).to(dtype)
        x[0, 2], x[0, 1, 3], x[-1, :2, 5] = x[0, 7], torch.nan, torch.inf
        calls.append((x, torch.randint(-1, c + 1, (b, n))))
    kernel, checked = Emulated(LOSS, tmp_path, *calls), kgen.loads(LOSS).kernel
    assert abreast(kernel.expressions) == {side}
    for call in calls:
        made = kernel(*call)
        want = Analysis(checked, dict(zip("xt", call, strict=True)), "cuda").results()[0]
        off = (made["y"].double() - want.exact).abs()
        assert bool((off.le(want.bound) | made["y"].double().eq(want.exact) | (made["y"].isnan() & want.exact.isnan())).all())
        assert torch.equal(made["k"], call[0].argmax(1))


@pytest.mark.parametrize("text", [NORM, SOFTMAX], ids=["norm", "softmax"])
def test_rows_abreast_have_the_same_bits_wherever_they_lie(text: str, tmp_path, monkeypatch) -> None:
    """Fewer of them, in place, of dims that are merged into none, and in kernels for any dims, which a written file has."""
    torch.manual_seed(1)
    (x, *rest), checked = given(text, (1100, 272))[0], kgen.loads(text).kernel
    some, padded = torch.as_strided(x, (1100, 16), (272, 1), 64), torch.zeros(1100, 280)[:, :272].copy_(x)
    calls = [(x, *rest), (some, *(t[64:80] if t.shape == (272,) else t for t in rest)), (padded, *rest)]
    kernel = Emulated(text, tmp_path, *calls)
    assert abreast(kernel.expressions) == {"4"}
    whole, part, apart = [kernel(*call) for call in calls]
    for name, value in whole.items():
        assert torch.equal(value[..., 64:80], part[name]) and torch.equal(value, apart[name]), name
    own = x.clone()
    kernel(own, *rest, out=own if len(checked.results) == 1 else (own, None))
    assert torch.equal(own, whole["y"])
    walks = for_any_rows(monkeypatch, rows)
    (tmp_path / "any").mkdir()
    files = Emulated(text, tmp_path / "any", *calls)
    for call, want in zip(calls, (whole, part, apart), strict=True):
        assert all(torch.equal(value, want[name]) for name, value in files(*call).items())
    assert any(w.abreast == 4 for w in walks)


@pytest.mark.parametrize("text, dtype", [(NORM, torch.float32), (SOFTMAX, torch.bfloat16), (GRADIENT, torch.float32)], ids=["norm", "softmax", "gradient"])
def test_a_column_has_the_same_bits_alone_and_among_any_number(text: str, dtype: Any, tmp_path) -> None:
    """In numbers that are no multiple of a vector, and beginning within one: taken one by one, in the same order."""
    torch.manual_seed(2)
    parts = [slice(0, 13), slice(8, 9), slice(3, 24), slice(16, 24)]
    calls = []
    for m in (20, 200, 1100):
        call = given(text, (m, 24), dtype=dtype)[0]
        calls.append([call, *(tuple(t[..., one] if t.shape[-1] == 24 else t for t in call) for one in parts)])
    kernel = Emulated(text, tmp_path, *chain(*calls))
    for whole, *alone in calls:
        kernel.launched.clear()
        every = kernel(*whole)
        for one, own in zip(parts, alone, strict=True):
            for name, value in kernel(*own).items():
                assert torch.equal(value, every[name][..., one]), (whole[0].shape, one, name)
        assert len(abreast(kernel.launched)) == 2


@pytest.mark.parametrize("text", [NORM, SOFTMAX], ids=["norm", "softmax"])
def test_many_segments_are_combined_by_warps(text: str, tmp_path, monkeypatch) -> None:
    """In segments of few elements, which are so many that a thread asks for some twice; to the same bits among others and alone."""
    torch.manual_seed(4)
    monkeypatch.setattr(launches, "SEGMENT_APART", 16)
    rows.cached.cache_clear()
    call, checked = given(text, (9000, 12))[0], kgen.loads(text).kernel
    calls = [call, tuple(t[..., 5:6] if t.shape[-1] == 12 else t for t in call)]
    kernel = Emulated(text, tmp_path, *calls)
    rows.cached.cache_clear()
    assert any(re.search(r"<128, \d, 32, false, .*, true, 0, false, 1, ", e) for e in kernel.expressions), kernel.expressions
    made, alone = kernel(*call), kernel(*calls[1])
    names = [p.name for p in checked.params if p.is_tensor]
    for r, want in zip(checked.results, Analysis(checked, dict(zip(names, call, strict=True)), "cuda").results(), strict=True):
        assert bool((made[r.name].double() - want.exact).abs().le(want.bound).all()), r.name
        assert torch.equal(made[r.name][..., 5:6], alone[r.name]), r.name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("text", [NORM, SOFTMAX, GRADIENT], ids=["norm", "softmax", "gradient"])
def test_long_columns_of_which_few_lie_side_by_side(text: str, dtype: torch.dtype, tmp_path) -> None:
    """Points and channels last: teams go along the columns, and each has the same bits among others and alone, whatever a thread takes."""
    torch.manual_seed(5)
    shapes = [(2100, 3), (2600, 4), (2100, 5), (2049, 8), (4000, 16), (2100, 2)]
    calls, checked = given(text, *shapes, dtype=dtype), kgen.loads(text).kernel
    alone = [tuple(t[..., 1:2] if t.shape[-1] == n else t for t in call) for call, (_, n) in zip(calls, shapes, strict=True)]
    kernel = Emulated(text, tmp_path, *calls, *alone)
    teams = {e.split("<")[2].split(", ")[2] for e in kernel.expressions if ", true, 0, false, 0, " in e}
    assert teams == ({"64"} if text is GRADIENT else {"128", "64"}), kernel.expressions
    assert len({e.rpartition(", ")[2] for e in abreast(kernel.expressions)}) >= 3, kernel.expressions
    names = [p.name for p in checked.params if p.is_tensor]
    for call, own, shape in zip(calls, alone, shapes, strict=True):
        made, one = kernel(*call), kernel(*own)
        for r, want in zip(checked.results, Analysis(checked, dict(zip(names, call, strict=True)), "cuda").results(), strict=True):
            assert bool((made[r.name].double() - want.exact).abs().le(want.bound).all()), (r.name, shape)
            assert torch.equal(made[r.name][..., 1:2], one[r.name]), (r.name, shape)


def test_what_is_stored_two_by_two_goes_row_by_row(tmp_path) -> None:
    """Codes of 8 bits of two neighbours along a row, which one instruction makes."""
    text = "q8(x: T[M, N]) -> (q: f8e4m3[M, N], s: f32[N])\n\ns = max[M](abs(x)) / 448\nq = f8e4m3[saturate](x / s)\n"
    torch.manual_seed(4)
    x = torch.randn(40, 64)
    kernel = Emulated(text, tmp_path, (x,))
    assert not abreast(kernel.expressions)
    made = kernel(x)
    assert torch.equal(made["s"], x.abs().amax(0) / 448)
    assert torch.equal(made["q"].float(), (x / made["s"]).to(torch.float8_e4m3fn).float())


@pytest.mark.parametrize("text, takes", [
    (NORM, True), (LENGTHS, True), (PLACED, True), (LOSS, True),
    ("own(x: T[M, N], b: T[N]) -> y: T[M, N]\n\ny = x / sum[M](exp(x * b))\n", False),  # whose reading needs what is a row's own
    ("twice(x: T[M, N]) -> y: T[M, N]\n\ny = x * sum[M](exp(x / sum[M](abs(x))))\n", False),  # or a reading before it
    ("along(x: T[M, N]) -> y: T[M, N]\n\ny = x / sum[N](x)\n", False),
    ("noisy(x: T[M, N], seed: int) -> y: T[M, N]\n\ny = x * uniform[M, N](seed, 0) / sum[M](x)\n", False),
], ids=["norm", "lengths", "placed", "loss", "own", "twice", "along", "noisy"])  # fmt: skip
def test_which_rows_a_thread_may_take_abreast(text: str, takes: bool) -> None:
    units = backend("cuda").layout(kgen.loads(text).kernel)
    assert any(u.abreast for u in units if hasattr(u, "abreast")) == takes


def test_a_plan_of_rows_abreast_that_breaks_a_rule_is_found() -> None:
    x = rows.RowOperandPlace((1,), (4096,), 2, 0, True, True, True, 1)
    y = rows.RowOperandPlace((1,), (4096,), 2, 0, True, False, False, 1)
    limits = devices.limits("sm_90")
    plan = rows.plan((4096,), (65536,), (x, y), 0, 2, True, 3, limits, True, long=1, abreast=launches.ANY)
    assert plan is not None and [(w.step, w.abreast) for w, _ in plan.steps] == [(0, 8), (1, 0), (2, 8)]
    assert rows.plan((4096,), (65536,), (x, y), 0, 2, True, 3, limits, True, long=1).steps[0][0].abreast == 0

    def hold(operands: Any = (x, y), **changes: Any) -> None:
        verify_rows(rows.replace(plan, **changes), operands, 1000, limits, 1, True, True)

    hold()
    (first, reads), (second, joins), (third, stores) = plan.steps
    for broken in (
        {"steps": ((first, reads), (third, stores))}, {"steps": ((first, reads - 1), (second, joins), (third, stores))}, {"work": plan.work // 2},
        {"steps": ((first, reads), (second, joins), (third._replace(vectors=4), stores))}, {"row_sizes": (4092,), "rows": 4092},
    ):  # fmt: skip
        with pytest.raises(Broken):
            hold(**broken)
    with pytest.raises(Broken, match="aligned vectors"):
        hold(operands=(x._replace(address=4), y))


def test_which_rows_stay_in_registers_and_which_blocks_hold() -> None:
    """Up to 256 elements in registers, 512 of f32 too; 512 of bf16 and 1,024 of one operand in shared memory, which was quicker."""
    limits = devices.limits("sm_90")

    def found(itemsize: int, n: int) -> tuple[int, int]:
        x = rows.RowOperandPlace((1,), (4096,), itemsize, 0, True, True, True, 1)
        plan = rows.plan((4096,), (n,), (x, x._replace(kept=False, read=False)), 0, 2, True, 3, limits, True, long=1, abreast=launches.ANY)
        assert plan is not None
        return plan.steps[0][0].keep, plan.steps[0][0].abreast

    assert [found(2, n) for n in (3, 128, 200, 400, 1000, 2000)] == [(1, 8), (1, 8), (1, 8), (2, 0), (2, 0), (0, 8)]
    assert [found(4, n) for n in (3, 128, 200, 400, 1000, 2000)] == [(1, 4), (1, 4), (1, 4), (1, 4), (2, 0), (0, 4)]


def test_long_rows_that_look_an_element_up_go_one_by_one() -> None:
    """Beyond 64 elements, in the runtime and in a written file: threads would wait for each row's lookup."""
    kernel = kgen.loads(LOSS).kernel
    (unit,) = backend("cuda").layout(kernel)

    def taken(c: int) -> bool:
        args = torch.empty(2, c, 4096), torch.zeros(2, 4096, dtype=torch.int64)
        found = nvrtc.expressions(kernel, arguments.bind(kernel, args, {}, None), "sm_90")
        return any(one.endswith("unsigned, 1, 0, 4>>") for one in found)

    assert unit.abreast == launches.LOOKED_UP == 64
    assert "AbreastPass<64, " in backend("cuda").render(kernel) and "AbreastPass<ANY, " in backend("cuda").render(kgen.loads(NORM).kernel)
    assert [taken(c) for c in (19, 64, 65, 150)] == [True, True, False, False]
