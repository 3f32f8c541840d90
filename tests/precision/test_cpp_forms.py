"""C++'s forms of functions for 16-bit results: each on f32 numbers beside its bound, and what is made of them on all numbers of 16 bits."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import pytest
import torch
from torch.nn import functional

import kgen
from kgen.backends import backend
from kgen.backends import text as pieces
from kgen.backends.base import resource
from kgen.precision import BRIEF, NEAR, SHIFT
from kgen.testing.bounds import ulp

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

#: Where the values of a function are numbers of f32, and its exact value.
WHERE = {"exp": ((-104, 88.7), torch.exp), "sigmoid": ((-104, 200), torch.sigmoid), "tanh": ((-200, 200), torch.tanh),
         "sigmoid_slope": ((-104, 104), lambda x: torch.sigmoid(x) * torch.sigmoid(-x)),
         "erfc": ((-20, 10.2), torch.erfc)}
HEAD = "#include <cmath>\n#include <cstdint>\n#include <cstring>\n#include <limits>\n"


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    """Each form by its name, of a tensor of f32, as for results of 16 bits."""
    folder, names = tmp_path_factory.mktemp("forms"), sorted(backend("cpp").own_forms)
    entries = [f'extern "C" void call_{f}(int n, const float* x, float* y) {{ for (int i = 0; i < n; i++) y[i] = {f}<short>(x[i]); }}' for f in names]
    place = folder / "forms.cpp"
    place.write_text("\n".join([HEAD, *map(str, pieces.functions(resource("templates") / "cpp", names, backend("cpp").columns()).values()), *entries]))
    command = ["g++", "-O1", "-std=c++17", "-march=native", "-ffp-contract=off", "-w", "-shared", "-fPIC", str(place), "-o", str(folder / "forms.so")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(folder / "forms.so"))

    def call(name, x):
        y = torch.empty_like(x)
        getattr(library, f"call_{name}")(len(x), ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()))
        return y

    return call


def sample(least: float, most: float):
    """Numbers of f32 all over an interval, as their bits lie and evenly."""
    bits = torch.arange(0, 0x7F800000, 4093, dtype=torch.int32).view(torch.float32)
    x = torch.cat([bits, -bits, torch.linspace(least, most, 500_000)])
    return x[(x >= least) & (x <= most)]


def test_every_form_that_cpp_has_is_tested():
    assert {name.partition("_")[2] for name in backend("cpp").own_forms} == set(WHERE)


@pytest.mark.parametrize("name", sorted(backend("cpp").own_forms))
def test_a_form_stays_within_its_bound_down_to_denormals(functions, name):
    form, _, op = name.partition("_")
    interval, exact = WHERE[op]
    x = sample(*interval)
    want = exact(x.double())
    bound = BRIEF * want.abs()
    if form == "near":
        bound = NEAR * want.abs() + torch.maximum(*((exact(x.double() * (1 + s)) - want).abs() for s in (-SHIFT, SHIFT)))
    assert ((functions(name, x).double() - want).abs() <= bound + 2.0**-148).all()


@pytest.mark.parametrize("name", sorted(backend("cpp").own_forms))
def test_special_values_are_the_accurate_ones(functions, name):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([inf, -inf, nan, -nan, 0.0, -0.0, 1e-45, -1e-45, 1e38, -1e38, 89.5, -105.0, 1e30, -1e30])
    want, got = WHERE[name.partition("_")[2]][1](x.double()).float(), functions(name, x)
    assert torch.allclose(got, want, rtol=BRIEF, atol=0, equal_nan=True) and torch.equal(got[want == 0].signbit(), want[want == 0].signbit())


TEXT = """f(x: T[N]) -> (a: T[N], b: T[N], c: T[N], d: T[N], e: T[N])
a = gelu(x)
b = silu(x)
c = gelu_tanh(x)
d = tanh(x)
e = exp(x)
"""


def cube(x):
    """What `gelu_tanh` takes the sigmoid of, which its own roundings move."""
    return 2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_all_numbers_of_16_bits(dtype, built_quickly):
    """Results lie within half a unit in the last place and what the forms and f32's own roundings add."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = x[x.isfinite() & (x.double().abs() < 2.0**40)]
    wide = x.double()
    a, b, c, d, e = kgen.loads(TEXT)(x)
    exact = [(a, wide * 0.5 * torch.erfc(-wide * 0.5**0.5), wide**2), (b, functional.silu(wide), 0), (d, wide.tanh(), 0), (e, wide.exp(), 0)]
    exact.append((c, wide * torch.sigmoid(cube(wide)), cube(wide).abs() * 8))
    for got, want, moved in exact:
        room = want.abs() * (BRIEF + 2.0**-22 + 2.0**-24 * torch.as_tensor(moved).clamp(max=400)) + 2.0**-140
        off = (got.double() - want).abs()
        inside = want.abs() < torch.finfo(dtype).max
        assert (off <= room + 0.5 * ulp(want.abs() + room, str(dtype).removeprefix("torch.").replace("bfloat16", "bf16").replace("float16", "f16")))[inside].all()
