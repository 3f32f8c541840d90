"""Floats of few bits: their conversions bit for bit those of ml_dtypes, torch and the formats' definitions, on three targets."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import kgen
from kgen import check, syntax
from kgen.backends import backend
from kgen.runtime import coded, toolchain
from kgen.types import DTYPES
from tests import warm
from tests.cuda.emulated import Emulated
from tests.formats.kernels import CASTS, CHANCE, CODED, F4, all_codes, casts, check_casts, check_chance, check_values, same, samples, values

ml_dtypes = pytest.importorskip("ml_dtypes")
ROOT = Path(__file__).parents[2]
OTHERS = {
    "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0": "float8_e8m0fnu",
}  # fmt: skip


def every_16_bit_value() -> torch.Tensor:
    bits = torch.arange(2**16).to(torch.uint16)
    return torch.cat([bits.view(torch.float16).float(), bits.view(torch.bfloat16).float()])


def check_reference(x: torch.Tensor) -> None:
    """The definition beside ml_dtypes, where NaN has other bits and a scale has no 0 and no sign, and beside torch, which of late
    saturates to e4m3fn."""
    for d in CODED:
        got = coded.rounded(d, (), x).view(torch.uint8)
        with np.errstate(invalid="ignore"):
            other = torch.from_numpy(x.numpy().astype(getattr(ml_dtypes, OTHERS[d.name])).view(np.uint8))
        alike = x > 0 if d.name == "f8e8m0" else ~x.isnan()
        assert torch.equal(got[alike], other[alike]), d
        assert (coded.value(d, other[x.isnan()]).isnan()).all()
        fits = x.abs() <= 464 if d.name == "f8e4m3" else torch.ones_like(x, dtype=torch.bool)
        assert torch.equal(got[fits], x.to(getattr(torch, d.torch)).view(torch.uint8)[fits]), d


def test_the_definition_is_that_of_others():
    check_reference(every_16_bit_value())
    check_reference(samples(100_000)[0])


def test_the_values_of_half_a_byte_are_those_of_ml_dtypes():
    """Which has an encoding of its own for NaN; here it is the greatest value, as NVIDIA's conversion has it."""
    x = torch.cat([every_16_bit_value(), samples(100_000)[0]])
    got = coded.code(F4, (), x)
    with np.errstate(invalid="ignore"):
        other = torch.from_numpy(x.numpy().astype(ml_dtypes.float4_e2m1fn).view(np.uint8)).long() & 15
    assert torch.equal(got[~x.isnan()], other[~x.isnan()]) and (got[x.isnan()] == 7).all()


def test_16_bit_floats_are_torchs():
    x = samples(100_000)[0]
    for name in ("f16", "bf16"):
        assert same(coded.rounded(DTYPES[name], (), x), x.to(getattr(torch, DTYPES[name].torch))).all()


@pytest.mark.slow
def test_67_million_values():
    kernel = kgen.loads(casts("f32"))
    for k in range(64):
        x = torch.randint(-(2**31), 2**31, (2**20,), generator=torch.Generator().manual_seed(k)).to(torch.int32).view(torch.float32)
        check_reference(x)
        check_casts(kernel, x, torch.randint(0, 2**32, x.shape))


@pytest.mark.parametrize("dtype", ["f32", "f64", pytest.param("bf16", marks=pytest.mark.slow)])
def test_casts_in_cpp(dtype):
    x, bits = samples(20_000, getattr(torch, DTYPES[dtype].torch))
    if dtype == "f64":  # what rounding twice would get wrong
        x = torch.cat([x, torch.nextafter(x, torch.tensor(torch.inf, dtype=x.dtype)), torch.nextafter(x, -x)])
        bits = bits.repeat(3)
    check_casts(kgen.loads(casts(dtype)), x, bits)


def test_a_cast_by_chance_to_a_dtype_of_the_call():
    x, bits = samples(2_000)
    check_chance(kgen.loads(CHANCE), x, bits)
    with pytest.raises(kgen.KgenError, match="where T is f32 it would round f64"):
        kgen.loads("f(x: f64[N], like: T[N], bits: u32[N]) -> y: T[N]\n\ny = T[stochastic](x, bits)\n")
    with pytest.raises(kgen.KgenError, match=r"`T` has no cast \[saturate\]"):
        kgen.loads("f(x: T[N]) -> y: T[N]\n\ny = T[saturate](x)\n")


def test_values_in_cpp():
    check_values(kgen.loads(values()))


def test_casts_and_values_in_cuda(tmp_path, built_quickly):
    """The integer operations that GPUs before sm_89 take, by the emulation; for sm_90 it compiles to the hardware's conversion."""
    x, bits = samples(2_000)
    (tmp_path / "chance").mkdir()
    chance = Emulated(CHANCE, tmp_path / "chance", *((x, x.to(d), bits.to(torch.uint32)) for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64)))
    check_chance(lambda *given: chance(*given)["y"], x, bits)
    made = Emulated(casts("f32"), tmp_path, (x, bits.to(torch.uint32)))
    check_casts(lambda *given: made(*given).values(), x, bits)
    emulated = Emulated(values(), tmp_path, tuple(all_codes()))
    check_values(lambda *given: emulated(*given).values())
    for arch, wanted in (("sm_80", 0), ("sm_90", 4)):
        kernel = check.check(syntax.parse(casts("f32"), "casts.k"))
        text = toolchain.listing(kernel, backend("cuda").render(kernel), "ptx", "cuda", {}, arch)
        assert len(set(re.findall(r"cvt\.rn\.satfinite\.e[45]m[23]x2\.f32 (\S+),", text))) >= wanted
        assert ("satfinite" in text) == bool(wanted)


READ = """read(x: f32[N, M]) -> (codes: f8e4m3[N], y: f32[N])

codes = max[M](x) + 1
y = codes * 2"""


PACKED = """packed(x: i4[..., N], y: i4[..., N], w: f32[N]) -> z: f32[..., N]

z = (x + y) * w"""


def test_triton(tmp_path):
    """By Triton's interpreter, in one process."""
    pytest.importorskip("triton")
    for text in (casts("f32"), values(), READ, CHANCE, PACKED):
        name = text.partition("(")[0]
        (tmp_path / f"{name}.py").write_text(backend("triton").render(check.check(syntax.parse(text, f"{name}.k"))))
    script = ROOT / "tests" / "formats" / "interpreted_formats.py"
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = warm.run(script, tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]


def test_every_mode_has_a_case():
    assert {d.name for d, _ in CASTS} == {"f16", "bf16", "f4e2m1", *OTHERS}
    assert len(CASTS) == 5 * 4 + 3 + 2 * 3


@pytest.mark.parametrize(("text", "shapes", "said"), [
    ("q(x: f4e2m1[..., N], w: f32[N]) -> y: f32[..., N]\n\ny = x * w", [(3, 5), (9,)], r"w has 9 along N, which is 10 \(x has 5 bytes of two\)"),
    ("q(x: T[..., N]) -> y: i4[..., N]\n\ny = i4(x)", [(3, 5)], "x has 5 along N, of which 2 share a byte: 5 is no multiple of 2"),
    ("q(x: i4[..., N], w: i4[..., N]) -> y: i4[..., N]\n\ny = i4(max(x, w))", [(3, 5), (3, 4)], r"dim N \(bytes of two\) is 5 in x and 4 in w"),
    ("q(x: i4[..., 64], w: f32[64]) -> y: f32[..., 64]\n\ny = x * w", [(3, 32), (9,)], "w has 9 along 64, which is 64"),
])  # fmt: skip
def test_sizes_of_packed_tensors_are_told_by_their_own_dim(text: str, shapes: list[tuple[int, ...]], said: str) -> None:
    given = [torch.zeros(s, dtype=torch.float32 if len(s) < 2 or len(shapes) == 1 else torch.uint8) for k, s in enumerate(shapes)]
    with pytest.raises(kgen.KgenError, match=said):
        kgen.loads(text)(*given)
    if "f4e2m1" in text:
        with pytest.raises(kgen.KgenError, match=r"w has 2 dims\n = help: it is declared `w: f32\[N\]`"):
            kgen.loads(text)(given[0], torch.zeros(10, 2))
        assert kgen.loads(text).kernel.signature() == text.partition("\n")[0]
        with pytest.raises(kgen.KgenError, match=r"out has shape \[3, 9\], but N is 10"):
            kgen.loads(text)(given[0], torch.zeros(10), out=torch.zeros(3, 9))


def test_packed_results_in_another_layout(built_quickly):
    """torch copies no large transposed tensor of two elements a byte."""
    f = kgen.loads("f(x: T[M, N]) -> z: f4e2m1[M, N]\n\nz = x * 2\n")
    x = (torch.arange(-40, 40).repeat(400)[: 256 * 70].reshape(256, 70) / 8).T
    for out in (torch.empty(70, 128, dtype=torch.uint8), torch.empty(128, 70, dtype=torch.uint8).T):
        f(x, out=out.view(torch.float4_e2m1fn_x2), target="torch")
        assert torch.equal(out, f(x, target="cpp").view(torch.uint8))
