"""Specs of all conversions to and from floats of few bits, and what their results are held to."""

from __future__ import annotations

from typing import Any

import torch

from kgen.ops import modes
from kgen.runtime import coded
from kgen.types import DTYPES

CODED = [d for d in DTYPES.values() if d.coded and d.bits == 8]
F4 = DTYPES["f4e2m1"]
#: Each dtype with each of its modes: results of one kernel, in this order.
CASTS = [(d, how) for d in DTYPES.values() for how in modes(d) if how or d.coded]


def casts(source: str) -> str:
    """A spec with every cast of x, a float of a dtype."""
    results, lines = [], []
    for k, (d, how) in enumerate(CASTS):
        results.append(f"r{k}: {d if d is not F4 else 'u8'}[N]")  # of four bits each in a byte of its own
        brackets, more = f"[{', '.join(how)}]" if how else "", ", bits" if "stochastic" in how else ""
        cast = f"{d}{brackets}(x{more})"
        lines.append(f"r{k} = {cast if d is not F4 else f'{d}_code({cast})'}")
    return f"casts_{source}(x: {source}[N], bits: u32[N]) -> ({', '.join(results)})\n\n" + "\n".join(lines) + "\n"


#: A cast by chance to a dtype that the call chooses.
CHANCE = "chance(x: f32[N], like: T[N], bits: u32[N]) -> y: T[N]\n\ny = T[stochastic](x, bits)\n"


def check_chance(run: Any, x: torch.Tensor, bits: torch.Tensor, least: float = 0.0) -> None:
    """Hold what CHANCE gives for each dtype to the definition of that, or to x where it has all of its bits."""
    for d in (DTYPES[name] for name in ("f16", "bf16", "f32", "f64")):
        dtype = getattr(torch, d.torch)
        got, want = run(x, x.to(dtype), bits.to(torch.uint32)), coded.rounded(d, ("stochastic",), x, bits) if d.narrow else x.to(dtype)
        bad = (~same(got, want) if d.narrow else ~((got == want) | x.isnan())) & ~((want.abs() < least) & (d.name == "bf16"))
        assert got.dtype == dtype and not bad.any(), (d, x[bad][:4], got[bad][:4], want[bad][:4], bits[bad][:4])


def values() -> str:
    """A spec with the values of codes of every dtype, and one that stays what it is."""
    params = ", ".join([*(f"{d}_: {d}[N]" for d in CODED), "four: u8[N]"])
    results = ", ".join([*(f"{d}_v: f32[N]" for d in CODED), "four_v: f32[N]"])
    lines = [*(f"{d}_v = {d}_" for d in CODED), "four_v = f4e2m1_value(four & 15)"]
    return f"values({params}) -> ({results}, same: f8e4m3[N])\n\n" + "\n".join(lines) + f"\nsame = {CODED[0]}_\n"


def samples(count: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Values at the edges of all formats, ties and denormals among them, NaN, infinities, and random ones of any exponent; and random bits,
    as i64 of 32 bits."""
    g = torch.Generator().manual_seed(7)
    edges = [x for d in (*CODED, F4) for m in [coded.magnitudes(d)] for x in (m, (m[1:] + m[:-1]) / 2)]
    exact = torch.cat(edges).to(torch.float32)
    about = torch.cat([exact, torch.nextafter(exact, torch.tensor(torch.inf)), torch.nextafter(exact, torch.tensor(0.0))])
    special = torch.tensor([torch.nan, torch.inf, 0.0, 1e-45, 1.1754942e-38, 3.4028235e38, 65504.0, 65519.996, 65520.0, 3.3961776e38])
    some = torch.randint(-(2**31), 2**31, (count,), generator=g).to(torch.int32).view(torch.float32)
    x = torch.cat([about, special, torch.randn(count, generator=g) * 20])
    x = torch.cat([x, -x, some])
    bits = torch.randint(0, 2**32, x.shape, generator=g)
    bits[::5], bits[1::5] = 0, 2**32 - 1
    return x.to(dtype), bits


def same(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Where two tensors have the same bits; of 16 bits one NaN is as good as another."""
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    if got.dtype.itemsize == 1:
        return got.view(torch.uint8) == want.view(torch.uint8)
    equal = got.view(torch.int16 if got.dtype.itemsize == 2 else torch.int32) == want.view(torch.int16 if got.dtype.itemsize == 2 else torch.int32)
    return equal | got.isnan() & want.isnan()


def check_casts(run: Any, x: torch.Tensor, bits: torch.Tensor, least: float = 0.0) -> None:
    """Hold what a kernel of `casts` gives to the definition of each format; of bf16, where no magnitude but 0 lies below `least`."""
    for (d, how), got in zip(CASTS, run(x, bits.to(torch.uint32)), strict=True):
        wide = x.double() if x.dtype == torch.float64 else x.float()
        want = coded.rounded(d, how, wide, bits) if d is not F4 else coded.code(d, how, wide, bits).to(torch.uint8)
        bad = ~same(got.cpu(), want.cpu())
        if d.name == "bf16":
            bad &= ~(want.cpu().abs() < least)
        assert not bad.any(), (d, how, x[bad][:4], got[bad][:4], want[bad][:4], bits[bad][:4])


def all_codes() -> list[torch.Tensor]:
    """What a kernel of `values` takes: all codes of every dtype."""
    codes = torch.arange(256).to(torch.uint8)
    return [*(codes.view(getattr(torch, d.torch)) for d in CODED), codes]


def check_values(run: Any) -> None:
    """Hold what a kernel of `values` gives to torch's own conversion, of all codes."""
    codes = all_codes()
    *found, four, kept = run(*codes)
    for d, code, got in zip(CODED, codes[:-1], found, strict=True):
        assert same(got.cpu(), code.to(torch.float32)).all(), d
    assert same(kept.cpu(), codes[0]).all()
    assert four[:16].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
