"""A kernel called with tensors: results, layouts, in-place state, and errors that name the parameter and the dim."""

from __future__ import annotations

import warnings

import pytest
import torch

import kgen
from kgen.check import Kernel as Checked
from kgen.runtime.arguments import bind
from kgen.testing.cases import Limits
from kgen.testing.checks import check
from tests.conftest import ROOT
from tests.specs.cases import built_as_its_like, turns

SPECS = sorted(p.stem for p in (ROOT / "specs").glob("*.k"))
ADAMW = ROOT / "specs" / "adamw.k"


@pytest.mark.parametrize("name", SPECS)
def test_random_cases_stay_within_the_derived_bound(name: str, request: pytest.FixtureRequest) -> None:
    built_as_its_like(name, request)
    kernel = kgen.load(name).kernel
    if not kernel.reduces and SPECS.index(name) % 2:  # their operators are built at -O3 for tests/ops
        request.getfixturevalue("built_quickly")
    # What reduces takes the compiler two seconds a dtype: that which tests/specs builds too; of maps each has one of the four in its turn.
    chosen = turns(name)[0 if kernel.reduces else SPECS.index(name) // 2 % 2]
    held(kernel, Limits(dtypes=dict.fromkeys(kernel.variables, (chosen,))), 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_random_cases_of_every_dtype_stay_within_the_derived_bound(name: str) -> None:
    held(kgen.load(name).kernel, None, 80)


def held(kernel: Checked, limits: Limits | None, examples: int) -> None:
    report = check(kernel, "cpp", examples=examples, limits=limits)
    assert not report.failures, report.failures[0]
    assert report.elements > 0


def gelu() -> kgen.Kernel:
    return kgen.load("gelu")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gelu_is_torchs(dtype: torch.dtype) -> None:
    x = torch.linspace(-6, 6, 4097, dtype=torch.float64).to(dtype)
    exact = x.double() * 0.5 * torch.erfc(-x.double() * 0.5**0.5)  # torch's own gelu cancels in the tail
    computed = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    # erfc(z) magnifies the rounding of z by 2 z^2 = x^2, which is 36 at the ends; 4 ulp are erfc's own, 2 the products'
    rtol = (1.5 * 36 + 6) * computed + torch.finfo(dtype).eps
    torch.testing.assert_close(gelu()(x), exact.to(dtype), rtol=rtol, atol=0)


def test_dense_memory_formats_are_kept() -> None:
    x = torch.randn(2, 3, 4, 5)
    for given in (x.contiguous(memory_format=torch.channels_last), x.permute(3, 1, 0, 2), x.mT):
        assert gelu()(given).stride() == torch.empty_like(given).stride()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 1, 1)])
def test_empty_and_0d(shape: tuple[int, ...]) -> None:
    y = gelu()(torch.randn(shape))
    assert y.shape == shape


def test_a_result_does_not_depend_on_where_its_element_lies() -> None:
    x = torch.randn(5000)
    whole = gelu()(x)
    for start, end in ((0, 1), (3, 500), (511, 513), (4999, 5000), (7, 4001)):
        assert torch.equal(gelu()(x[start:end]), whole[start:end])
    wide = torch.empty(5000, 3)
    wide[:, 1] = x
    assert torch.equal(gelu()(wide[:, 1]), whole)


def test_more_threads_change_nothing() -> None:
    x = torch.randn(1 << 20)
    assert torch.equal(gelu()(x)[:1000], gelu()(x[:1000]))


def test_out_takes_the_result() -> None:
    x, out = torch.randn(7, 5), torch.empty(7, 10)[:, ::2]
    assert gelu()(x, out=out) is out
    torch.testing.assert_close(out, torch.nn.functional.gelu(x))
    empty = torch.empty(0)
    assert gelu()(x, out=empty).shape == x.shape
    same = x.clone()
    torch.testing.assert_close(gelu()(same, out=same), torch.nn.functional.gelu(x))


def test_out_says_the_device_where_no_argument_is_a_tensor() -> None:
    """Fuzzing on a GPU: a kernel over parts was given parts of the result alone, where of a tensor only a dim counts."""
    kernel = kgen.loads("f(y: int) -> u: f16[3]\n\nu = exponential[3](y, 0)\n").kernel
    for out, device in ((torch.empty(3, dtype=torch.float16, device="meta"), "meta"), (None, "cpu"), (torch.empty(3, dtype=torch.float16), "cpu")):
        call = bind(kernel, (2,), {}, out)
        assert call.device.type == call.results["u"].device.type == device


def test_several_results_come_as_a_tuple_and_out_takes_one() -> None:
    kernel = kgen.loads("both(x: T[..., N]) -> (s: T[..., N], c: f32[..., N], n: i64[N])\ns = sin(x)\nc = cos(x)\nn = index[N] * N")
    x = torch.randn(3, 4, dtype=torch.float16)
    s, c, n = kernel(x)
    assert (s.dtype, c.dtype, n.tolist()) == (torch.float16, torch.float32, [0, 4, 8, 12])
    given = (torch.empty_like(s), torch.empty_like(c), torch.empty_like(n))
    assert all(a is b for a, b in zip(kernel(x, out=given), given, strict=True))


def test_state_is_written_in_place_as_torchs_optimizer_does() -> None:
    kernel = kgen.load(ADAMW)
    p = torch.randn(33, 5)
    q = p.clone().requires_grad_()
    m, v = torch.zeros_like(p), torch.zeros_like(p)
    reference = torch.optim.AdamW([q], lr=1e-2, weight_decay=1e-2)
    for step in range(1, 6):
        q.grad = torch.randn(33, 5)
        version = p._version
        assert kernel(p, q.grad, m, v, t=step, lr=1e-2) is None
        assert p._version == version + 1
        reference.step()
    torch.testing.assert_close(p, q.detach(), rtol=1e-6, atol=1e-6)


def test_numbers_do_not_rebuild() -> None:
    kernel = kgen.load("clip_by_value")
    x = torch.randn(100)
    torch.testing.assert_close(kernel(x, -0.5, 0.5), x.clamp(-0.5, 0.5))
    torch.testing.assert_close(kernel(x, lo=-1, hi=2), x.clamp(-1, 2))


def test_a_named_dim_broadcasts_wherever_it_stands() -> None:
    kernel = kgen.loads("scale(x: T[B, C, S], w: T[C], v: T[S, B]) -> y: T[S, C, B]\ny = x * w + v")
    x, w, v = torch.randn(2, 3, 5), torch.randn(3), torch.randn(5, 2)
    torch.testing.assert_close(kernel(x, w, v), (x * w[:, None] + v.T[:, None, :]).permute(2, 1, 0))


def test_leading_dims_broadcast_as_torchs() -> None:
    kernel = kgen.load("add")
    for a, b in (((4, 1, 3), (5, 1)), ((), (2, 3)), ((1,), (0,)), ((2, 1), (2, 4))):
        x, y = torch.randn(a), torch.randn(b)
        torch.testing.assert_close(kernel(x, y), x + y)


ERRORS = [
    ("bias_gelu", lambda t: (t(2, 1024), t(1000)), {}, "dim N is 1024 in x and 1000 in b"),
    ("bias_gelu", lambda t: (t(2, 3), t(1)), {}, "dim N is 3 in x and 1 in b"),
    ("bias_gelu", lambda t: (t(2, 3), t(2, 3)), {}, "b has 2 dims"),
    ("bias_gelu", lambda t: (t(2, 3).half(), t(3)), {}, "T is f16 in x and f32 in b"),
    ("gelu", lambda t: (t(3).int(),), {}, "x is i32"),
    ("gelu", lambda t: ([1.0],), {}, "x is a list, not a tensor"),
    ("gelu", lambda t: (), {}, "x is missing"),
    ("gelu", lambda t: (t(3), t(3)), {}, "it takes 1 arguments, not 2"),
    ("gelu", lambda t: (t(3),), {"z": 1}, "there is no parameter z"),
    ("add", lambda t: (t(2, 3), t(4, 3)), {}, "the leading dims are [2, 3] in a and [4, 3] in b"),
    ("gelu", lambda t: (t(3).requires_grad_(),), {"out": torch.empty(3)}, "x requires grad"),
    ("gelu", lambda t: (t(3),), {"out": torch.empty(4)}, "out has shape [4], the result y has [3]"),
    ("gelu", lambda t: (t(3),), {"out": torch.empty(3, dtype=torch.float64)}, "out is float64, the result y is float32"),
    ("gelu", lambda t: (t(3),), {"out": torch.empty(1).expand(3)}, "elements of out share memory"),
    ("gelu", lambda t: (t(3),), {"target": "triton"}, "the target triton does not run on cpu"),
    ("gelu", lambda t: (t(3),), {"target": "metal"}, "there is no target metal"),
    ("clip_by_value", lambda t: (t(3), "a", 1.0), {}, "lo is a str, not a float"),
    ("adamw", lambda t: (t(1).expand(3), t(3), t(3), t(3), 1, 0.1), {}, "elements of p share memory"),
    ("adamw", lambda t: (t(3), t(2, 3), t(3), t(3), 1, 0.1), {}, "p has shape [3], but the result p' has [2, 3]"),
    ("adamw", lambda t: (t(3), t(3), t(3), t(3), 1.5, 0.1), {}, "t is the float 1.5, not an int"),
]


@pytest.mark.parametrize(("name", "arguments", "more", "message"), ERRORS, ids=[e[3] for e in ERRORS])
def test_a_wrong_call_says_what_is_wrong(name: str, arguments, more: dict, message: str) -> None:
    with pytest.raises(kgen.KgenError) as error:
        kgen.load(name)(*arguments(torch.randn), **more)
    assert message in str(error.value)


def test_results_that_overlap_arguments_are_refused() -> None:
    x = torch.randn(10)
    with pytest.raises(kgen.KgenError, match="out overlaps x"):
        gelu()(x[:9], out=x[1:])
    p = torch.randn(8)
    with pytest.raises(kgen.KgenError, match="p overlaps g"):
        kgen.load(ADAMW)(p[1:], p[:-1], torch.zeros(7), torch.zeros(7), 1, 0.1)


def test_without_a_compiler_torch_evaluates_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from kgen.runtime import build

    def nothing(*_):
        raise build.NoCompiler("there is no C++ compiler")

    monkeypatch.setattr(build, "compiler", nothing)
    kernel, x = kgen.load("silu"), torch.randn(5)
    with pytest.warns(UserWarning, match="operator by operator"):
        torch.testing.assert_close(kernel(x), torch.nn.functional.silu(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(x)


def test_addresses_above_2_31_are_right() -> None:
    base = torch.empty(2**31 + 64, dtype=torch.int8)
    view = base[:: 2**30]
    view.copy_(torch.tensor([1, 2, 3]))
    assert kgen.loads("twice(x: i8[N]) -> y: i8[N]\ny = x * 2")(view).tolist() == [2, 4, 6]


def test_the_collector_rests_while_a_kernel_is_made_and_no_longer() -> None:
    import gc

    from kgen.runtime import kernel

    seen = []
    make = kernel._uncollected(lambda fails: (seen.append(gc.isenabled()), 1 / fails))
    for was in (True, False):
        gc.enable() if was else gc.disable()
        try:
            make(1)
            with pytest.raises(ZeroDivisionError):
                make(0)
            assert gc.isenabled() == was
        finally:
            gc.enable()
    assert seen == [False] * 4


def test_the_collector_rests_in_a_kernels_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it plans and launches; not in calls behind it, nor where it failed."""
    import gc

    from kgen.runtime import launchers

    seen: list[bool] = []
    run = launchers.Torch.__call__
    monkeypatch.setattr(launchers.Torch, "__call__", lambda self, call: (seen.append(gc.isenabled()), run(self, call))[0])
    silu = kgen.load("silu")
    for _ in range(2):
        silu(torch.ones(5), target="torch")
    assert seen == [False, True]
    with pytest.raises(kgen.KgenError):
        kgen.load("silu")(torch.ones(5), target="none")
    assert gc.isenabled()
