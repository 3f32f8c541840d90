"""Long rows that share parameters of columns: blocks that stay, and rows of odd lengths beside which parameters begin elsewhere.  Values
against float64, the same bits in every run, and a row's own alone."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.runtime import arguments, nvrtc
from kgen.testing.bounds import Analysis

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
#: Two parameters and values of a row's own; one parameter; a residual that is written where it is read; an online reading.
SPECS = {
    "norm": "norm(x: T[..., N], w: T[N], b: T[N], s: f32[...]) -> (y: T[..., N], mu: f32[...])\n\nmu = f32(mean[N](x))\n"
    "y = (x - mu) * rsqrt(mean[N]((x - mu)^2) + s^2) * w + b\n",
    "rms": "rms(x: T[..., N], w: T[N]) -> y: T[..., N]\n\ny = x * rsqrt(mean[N](x^2) + 0.001) * w\n",
    "added": "added(x: T[..., N], r: T[..., N], w: T[N]) -> (y: T[..., N], r': T[..., N])\n\nh = x + r\nr' = h\n"
    "y = h * rsqrt(mean[N](h^2) + 0.001) * w\n",
    "slope": "slope(dy: T[..., N], x: T[..., N], s: f32[...]) -> dx: T[..., N]\n\ne = exp(x) / s\ndx = e * (dy - sum[N](dy * e))\n",
    "soft": "soft(x: T[..., N], m: f32[N]) -> y: T[..., N]\n\ne = exp(x - max[N](x))\ny = e / sum[N](e) * m\n",
}
#: Where rows that share nothing follow one another, and one that does not.
SLOPES = (65_536, 250_000, 262_144)
LENGTHS = (32_768, 50_176, 65_536, 131_072, 262_144, 524_288, 1001, 10_001, 20_001, 32_001, 50_257, 65_001, 90_001)
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


def given(name: str, count: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Arguments of a kernel in their order."""
    made = []
    for p in kgen.loads(SPECS[name]).kernel.params:
        shape = (n,) if p.dims == ("N",) else (count, n) if "N" in p.dims else (count,)
        made.append((torch.randn(shape, device="cuda") + (p.name == "s")).to(dtype if p.dtype == "T" else torch.float32))
    return tuple(made)


CALLS = [(name, n) for name in SPECS for n in (SLOPES if name == "slope" else LENGTHS)]


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("name, n", CALLS)
def test_values_stay_within_their_bounds(name: str, n: int, dtype: str) -> None:
    """Fewer rows than there are clusters, and more: of those the first, one in the middle and the last."""
    kernel = kgen.loads(SPECS[name])
    for count in (3, 200):
        args = given(name, count, n, DTYPES[dtype])
        some = [0, count // 2, count - 1]
        asked = {p.name: a[some] if a.shape[0] == count and n != count else a for p, a in zip(kernel.kernel.params, (a.clone() for a in args), strict=True)}
        found = kernel(*args, target="cuda")
        results = found if isinstance(found, tuple) else (found, *(a for p, a in zip(kernel.kernel.params, args, strict=True) if p.name == "r"))
        wanted = Analysis(kernel.kernel, asked, "cuda").results()
        for r, got, want in zip(kernel.kernel.results, results, wanted, strict=True):
            assert bool((got[some].double() - want.exact).abs().le(want.bound).all()), (r.name, count)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("name, n", [(name, n) for name, n in CALLS if name != "added"])
def test_bits_are_the_same_in_every_run_and_a_rows_own_alone(name: str, n: int, dtype: str) -> None:
    kernel = kgen.loads(SPECS[name])
    count = 150
    args = given(name, count, n, DTYPES[dtype])

    def run(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = kernel(*args, target="cuda")
        return found if isinstance(found, tuple) else (found,)

    first = run(*args)
    for _ in range(20):
        assert all(torch.equal(a, b) for a, b in zip(first, run(*args), strict=True))
    for k in (0, 1, count // 2, count - 1):
        alone = run(*(a[k : k + 1] if a.shape[0] == count else a for a in args))  # where it lies: its order follows its alignment too
        assert all(torch.equal(a[0], b[k]) for a, b in zip(alone, first, strict=True)), k


def test_rows_of_several_dims_and_with_gaps_have_their_bits() -> None:
    """A kernel that finds its rows by several dims has the same results."""
    kernel = kgen.loads(SPECS["rms"])
    for n, dtype in ((65_536, torch.float32), (262_144, torch.bfloat16)):
        x, w = torch.randn(5, 4, n, device="cuda").to(dtype), torch.randn(n, device="cuda").to(dtype)
        dense = kernel(x, w, target="cuda")
        assert torch.equal(kernel(x[:, :3], w, target="cuda"), dense[:, :3])
        gaps = torch.randn(20, n + 64, device="cuda").to(dtype)
        gaps[:, :n] = x.flatten(0, 1)
        assert torch.equal(kernel(gaps[:, :n], w, target="cuda"), dense.flatten(0, 1))


@pytest.mark.parametrize("n", [65_536, 262_144, 50_257])
def test_no_more_clusters_take_rows_than_the_device_has_room_for(n: int) -> None:
    """Chips of one architecture differ in that; clusters of rows that begin anywhere take those that begin alike, of eight."""
    kernel = kgen.loads(SPECS["norm"]).kernel
    launcher = nvrtc.Launcher(kernel)
    for count in (2, 300):
        call = arguments.bind(kernel, given("norm", count, n, torch.bfloat16), {}, None)
        launcher(call)
        (step,) = call.launched[0].steps
        there = step.function.room(0, step.threads, step.shared, step.cluster)
        there -= there % 8 if n % 8 else 0
        assert step.cluster > 1 and 0 < there * step.cluster * step.threads <= 2048 * torch.cuda.get_device_properties(0).multi_processor_count
        assert step.grid <= step.cluster * min(count, there)
