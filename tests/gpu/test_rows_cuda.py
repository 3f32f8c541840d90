"""Reductions on a CUDA device through the CUDA source: every length and layout of a row against float64, and the same bits however
many rows there are, in every run, and whichever schedule takes a row."""

from __future__ import annotations

import math

import pytest
import torch

import kgen
from kgen.runtime import nvrtc
from kgen.runtime import rows as schedules
from kgen.runtime.arguments import bind, default
from tests.specs.cases import check_call

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
LENGTHS = (1, 2, 3, 31, 32, 33, 77, 257, 602, 1000, 1023, 1024, 1025, 4096, 5000, 16384, 50257, 65535, 65537, 393_216, 786_430, 2**20 + 1)
FEW_LENGTHS = (3, 33, 257, 1000, 5000, 50257, 2**20 + 1)  # one of each way to walk a row, with a ragged end
LAYOUTS = ("dense", "offset", "padded", "transposed", "every other", "expanded", "constant")


def drawn(layout: str, count: int, n: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    g = torch.Generator("cuda").manual_seed(seed + 1000 * n + count)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", generator=g).to(dtype)

    match layout:
        case "dense":
            return some(count, n)
        case "offset":
            return some(count * n + 3)[3:].view(count, n)
        case "padded":
            return some(count, n + 5)[:, :n]
        case "transposed":
            return some(n, count).t()
        case "every other":
            return some(count, 2 * n)[:, ::2]
        case "expanded":
            return some(1, n).expand(count, n)
        case _:
            return some(count, 1).expand(count, n)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.nan_to_num(7.5), b.nan_to_num(7.5))


def by_turns() -> list:
    """Kernels that hold rows or do not, by every layout and in both dtypes.  All take dense rows, each second one another layout, in one
    of the dtypes; the rest is slow."""
    found = []
    for k, name in enumerate(("softmax", "rmsnorm", "logsumexp", "argmax")):
        for w, layout in enumerate(LAYOUTS):
            for d, dtype in enumerate((torch.float32, torch.bfloat16)):
                turn = d == (k + w) % 2 and (layout == "dense" or (k + w // 2) % 2 == 0)
                found.append(pytest.param(name, dtype, layout, id=f"{name}-{dtype}-{layout}", marks=() if turn else pytest.mark.slow))
    return found


@pytest.mark.parametrize(("name", "dtype", "layout"), by_turns())
def test_every_length_and_layout(name: str, dtype: torch.dtype, layout: str) -> None:
    """Within the derived bound, and a row alone as among others."""
    kernel = kgen.load(name)
    for n in LENGTHS if layout == "dense" else FEW_LENGTHS:
        for count in (1, 7, 300):
            if count * n > 2**23:
                continue
            x = drawn(layout, count, n, dtype)
            more = (drawn("dense", 1, n, dtype)[0],) if name == "rmsnorm" else ()
            got = kernel(x, *more, target="cuda")
            if count * n <= 2**17:
                given = dict(zip((p.name for p in kernel.kernel.params), (x, *more), strict=False))
                check_call(kernel, {p.name: given[p.name] if p.name in given else default(p) for p in kernel.kernel.params}, "cuda")
            for r in {0, count // 2, count - 1}:
                assert same(kernel(x[r : r + 1], *more, target="cuda"), got[r : r + 1]), f"row {r} of {count} alone, {n} elements"


@pytest.mark.parametrize("n", [65537, 262144, 2**20 + 1])
def test_blocks_that_share_a_row_give_the_bits_of_one(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = drawn("dense", 3, n, torch.float32)
    for name in ("softmax", "variance", "argmax"):
        kernel = kgen.load(name)
        split = kernel(x, target="cuda")
        for _ in range(20):
            assert same(kernel(x, target="cuda"), split)
        for few in ("FEW_ROWS", "FEW_LONG_ROWS"):
            monkeypatch.setattr(schedules, few, 0)
        schedules.cached.cache_clear()
        assert same(kernel._bound((x,), {}, None, "cuda"), split)  # planned anew, as a call like the others would not be
        monkeypatch.undo()
        schedules.cached.cache_clear()


@pytest.mark.parametrize("n, dtype", [(2**19, torch.float32), (500_001, torch.float32), (2**20, torch.bfloat16), (2**21, torch.bfloat16)])
def test_long_rows_that_blocks_take_in_turns(n: int, dtype: torch.dtype) -> None:
    """By as many blocks as there are segments in each reading; from one reading that reduces, and two, and of a dear value that is made once
    where rows stay; within the derived bound, the same bits in place and by two streams at once, whose blocks have to share the device."""
    twice = "turns(x: T[..., N]) -> y: T[..., N]\n\ns = sum[N](abs(x))\ny = x * sum[N](exp(-abs(x) / (s + 1)))\n"
    capped = "capped(x: T[..., N]) -> y: T[..., N]\n\nc = 3 * tanh(x / 3)\ne = exp(c - max[N](c))\ny = e / sum[N](e)\n"
    x = drawn("dense", 40, n, dtype)
    streams = [torch.cuda.Stream() for _ in range(2)]
    for kernel in (kgen.load("softmax"), kgen.loads(twice), kgen.loads(capped)):
        check_call(kernel, {"x": x[:1]}, "cuda")
        y = kernel(x, target="cuda")
        assert same(kernel(x[:1], target="cuda"), y[:1])
        torch.cuda.synchronize()
        found = []
        for _ in range(5):
            for stream in streams:
                with torch.cuda.stream(stream):
                    found.append(kernel(x, target="cuda"))
        torch.cuda.synchronize()
        assert all(same(one, y) for one in found)
        own = x.clone()
        kernel(own, out=own, target="cuda")
        assert same(own, y)


def test_special_rows() -> None:
    inf, nan = math.inf, math.nan
    for n in (3, 100, 5000, 70_000, 2**20 + 1):
        x = torch.zeros(6, n, device="cuda")
        x[0, n // 2] = nan
        x[1] = -inf
        x[2, -1] = inf
        x[3, :] = -inf
        x[3, n - 1] = 1
        x[4, :] = 2
        x[5, 0], x[5, n // 2] = nan, inf
        assert kgen.load("argmax")(x, target="cuda").tolist() == x.argmax(-1).tolist() == [n // 2, 0, n - 1, n - 1, 0, 0]
        got = kgen.load("softmax")(x, target="cuda")
        torch.testing.assert_close(got, torch.softmax(x, -1), equal_nan=True)
        lse = kgen.load("logsumexp")(x, target="cuda")
        torch.testing.assert_close(lse, x.logsumexp(-1), equal_nan=True)


@pytest.mark.usefixtures("much_memory")
def test_more_than_2_31_elements() -> None:
    n = 2**31 + 4099
    x = torch.ones(n, dtype=torch.int8, device="cuda")
    x[-1], x[5] = 7, -3
    kernel = kgen.loads("all(x: i8[N]) -> (s: i64[], i: i64[], j: i64[])\ns = sum[N](x)\ni = argmax[N](x)\nj = argmin[N](x)")
    assert [int(v) for v in kernel(x, target="cuda")] == [n + 2, n - 1, 5]


def test_many_short_rows_and_few_long_columns() -> None:
    total = kgen.loads("total(x: T[M, N]) -> (r: f32[M], c: f32[N])\nr = f32(sum[N](x))\nc = f32(sum[M](x))")
    for m, n in ((2**20, 3), (2**22, 1), (2**18, 32), (3, 2**20), (1, 2**22), (100_000, 65)):
        x = drawn("dense", m, n, torch.float32)
        r, c = total(x, target="cuda")
        torch.testing.assert_close(r.double(), x.double().sum(1), rtol=1e-5, atol=1e-3)
        torch.testing.assert_close(c.double(), x.double().sum(0), rtol=1e-5, atol=1e-2)


def test_results_over_their_operands() -> None:
    x = drawn("dense", 300, 5000, torch.bfloat16)
    for layout in ("dense", "transposed", "padded"):
        x = drawn(layout, 300, 5000, torch.bfloat16)
        want = kgen.load("softmax")(x, target="cuda")
        out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda").copy_(x)
        kernel = kgen.loads("over(x: T[..., N]) -> x': T[..., N]\ne = exp(x - max[N](x))\nx' = e / sum[N](e)")
        kernel(out, target="cuda")
        assert torch.equal(out, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["norms/gated_rmsnorm", "softmax/temperature_softmax"])
def test_dear_values_that_wait_on_the_chip(name: str, dtype: torch.dtype) -> None:
    """In registers, in the place of their operands, or made anew, by the length of a row and by where it begins."""
    kernel = kgen.load(name)
    for n in (1, 100, 1000, 1024, 4096, 5000, 8192, 16384, 50257, 65536, 262144):
        for count, layout in ((3, "dense"), (40, "dense"), (3, "offset")):
            if count * n > 2**21:
                continue
            x = drawn(layout, count, n, dtype)
            given = {"x": x, "z": drawn(layout, count, n, dtype, 1), "w": drawn("dense", 1, n, dtype)[0], "temperature": 0.7}
            check_call(kernel, {p.name: given[p.name] if p.name in given else default(p) for p in kernel.kernel.params}, "cuda")
            more = [given[p.name] for p in kernel.kernel.params if p.name in ("z", "w", "temperature")]
            got = kernel(x, *more, target="cuda")
            one = [v[1:2] if isinstance(v, torch.Tensor) and v.ndim > 1 else v for v in more]
            assert same(kernel(x[1:2], *one, target="cuda"), got[1:2]), f"a row of {n} alone, {layout}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_softmax_over_a_temperature_of_one_is_the_plain_one(dtype: torch.dtype) -> None:
    """Bit for bit, where both walk a row alike: what waits on the chip between its readings is the row itself, in f32."""
    plain, other = kgen.load("softmax"), kgen.load("temperature_softmax")
    alike = 0
    for n in (1000, 1024, 4096, 5000, 12288, 32768, 131072, 196608, 262144):
        x = drawn("dense", max(3, 2**23 // n), n, dtype) * 3
        if way(plain, x) != way(other, x, 1.0):  # elements of the one are dear, and have steps of their own
            continue
        alike += 1
        want = plain(x, target="cuda")
        for _ in range(5):
            assert same(other(x, 1.0, target="cuda"), want), f"rows of {n}"
    assert alike >= 5


def way(kernel: kgen.Kernel, *args: object) -> list[str]:
    """How a kernel walks through the rows of a call."""
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    return [e.partition("Walk<")[2] for e in nvrtc.expressions(kernel.kernel, bind(kernel.kernel, args, {}, None), arch)]
