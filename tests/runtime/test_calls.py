"""Calls that find a plan give what calls without one give, and are refused what those are refused."""

from __future__ import annotations

import contextlib
import copy
import pickle
import random
import threading
from typing import Any

import pytest
import torch

import kgen
from kgen.runtime import calls, fast, memory

MIX = "mix(x: T[..., N], w: T[N], a: float, k: int = 2) -> y: T[..., N]\ny = x * w * a + k\n"
STEP = "step(p: T[...], g: T[...], m: f32[...], lr: float) -> (p': T[...], m': f32[...], y: f32[...])\nm' = m + g\np' = p - lr * m'\ny = g * 2\n"
TWO = "two(x: f32[..., N], z: f32[N]) -> (s: f32[...], y: f32[..., N])\ns = sum[N](x * z)\ny = x - s\n"


@pytest.fixture(scope="module", params=[False, True], ids=["general", "fast"], autouse=True)
def extension(request: pytest.FixtureRequest) -> Any:
    """Each test twice: without `kgen.runtime.fast`'s extension, and with it where it can be built."""
    with pytest.MonkeyPatch.context() as m:
        m.setattr(fast, "LESSONS", fast.LESSONS * request.param)
        yield fast.wait()


@pytest.fixture(scope="module")
def mix(extension: bool) -> kgen.Kernel:
    return kgen.loads(MIX)


@pytest.fixture(scope="module")
def step(extension: bool) -> kgen.Kernel:
    return kgen.loads(STEP)


@pytest.fixture(scope="module")
def two(extension: bool) -> kgen.Kernel:
    return kgen.loads(TWO)


def laid_out(shape: tuple[int, ...], dtype: torch.dtype, how: int) -> torch.Tensor:
    """A random tensor: dense, transposed, with gaps, expanded along its first dim, or one element into its storage."""
    if how == 1 and len(shape) > 1:
        return torch.randn(shape[::-1]).to(dtype).permute(*reversed(range(len(shape))))
    if how == 2 and shape:
        return torch.randn(*shape[:-1], 2 * shape[-1]).to(dtype)[..., ::2]
    if how == 3 and len(shape) > 1:
        return torch.randn(1, *shape[1:]).to(dtype).expand(shape)
    if how == 4 and shape:
        return torch.randn(torch.Size(shape).numel() + 1).to(dtype)[1:].view(shape)
    return torch.randn(shape).to(dtype)


def same(a: Any, b: Any) -> bool:
    a, b = (x if isinstance(x, tuple) else (x,) for x in (a, b))
    assert len(a) == len(b)
    return all(
        x is y is None or x.shape == y.shape and x.stride() == y.stride() and x.dtype == y.dtype and torch.equal(x, y)
        for x, y in zip(a, b, strict=True)
    )


def test_calls_with_a_plan_and_without_agree(mix: kgen.Kernel, two: kgen.Kernel) -> None:
    chance = random.Random(0)
    for _ in range(200):
        n, lead = chance.choice((0, 1, 3, 8)), tuple(chance.choices((0, 1, 2, 5), k=chance.randrange(3)))
        dtype = chance.choice((torch.float32, torch.float64))
        x, w = laid_out((*lead, n), dtype, chance.randrange(5)), laid_out((n,), dtype, chance.choice((0, 2, 4)))
        a, k = chance.choice((0.5, -3, 1e30, True + 1)), chance.choice((2, -7))
        args, kwargs = chance.choice((
            ((x, w, a), {}), ((x, w, a, k), {}), ((x,), {"k": k, "a": a, "w": w}), ((), {"a": a, "w": w, "x": x}), ((x, w), {"a": a}),
        ))  # fmt: skip
        want = mix._bound(args, dict(kwargs), None, None)
        for target in (None, None, "torch", "torch"):
            got = mix(*args, **kwargs, target=target)
            assert same(got, want) if target is None else torch.allclose(got, want, rtol=1e-5, atol=1e-5)
        outs = (laid_out((*lead, n), dtype, 2), laid_out((*lead, n), dtype, 0))
        assert all(mix(*args, **kwargs, out=out) is out and torch.equal(out, want) for out in outs for _ in range(2))
        if dtype == torch.float32:
            want = two._bound((x, w), {}, None, None)
            assert all(same(two(x, w), want) and same(two(z=w, x=x), want) for _ in range(2))
            out = tuple(torch.empty_like(t) for t in want)
            assert all(got is t for _ in range(2) for got, t in zip(two(x, w, out=list(out)), out, strict=True)) and same(out, want)


def test_what_is_written_in_place_is_the_same_with_a_plan(step: kgen.Kernel) -> None:
    g = torch.randn(5, 3)
    p = torch.randn(5, 6)[:, ::2]
    q = p.clone()
    m, n = torch.zeros(5, 3), torch.zeros(5, 3)
    for turn in range(4):
        versions = p._version, m._version
        y = step(p, g, m, 0.1 * turn)
        assert same(step._bound((q, g, n, 0.1 * turn), {}, None, None), y)
        assert torch.equal(p, q) and torch.equal(m, n) and (p._version, m._version) == (versions[0] + 1, versions[1] + 1)
    assert len(step._calls.plans) == 1


def test_out_is_marked_as_written(mix: kgen.Kernel) -> None:
    x, w, out = torch.randn(2, 3), torch.randn(3), torch.empty(2, 3)
    for turn in range(1, 4):
        mix(x, w, 1.0, out=out)
        assert out._version == turn
    with torch.inference_mode():
        kept = torch.empty(2, 3)
    assert torch.equal(mix(x, w, 1.0, out=kept), out)


def test_numbers_and_places_are_not_in_the_key(mix: kgen.Kernel) -> None:
    np = pytest.importorskip("numpy")
    mix = kgen.loads(MIX)
    buffer, w = torch.randn(40), torch.randn(4)
    for turn, a in enumerate((0.5, 3, -1e9, float("inf"), np.float32(0.25), np.int64(4), 2**70)):
        x = buffer[turn : turn + 4]
        torch.testing.assert_close(mix(x, w, a, turn), x * w * float(a) + turn, equal_nan=True)
    assert len(mix._calls.plans) == 1
    mix(buffer[:8:2], w, 1.0)
    mix(buffer[:4], w, 1.0, out=torch.empty(4))
    assert len(mix._calls.plans) == 3


def freed() -> torch.Tensor:
    t = torch.zeros(4)
    t.untyped_storage().resize_(0)
    return t


def negated(n: int = 4) -> torch.Tensor:
    return torch._neg_view(torch.randn(n))


def inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.randn(4)


def t4() -> torch.Tensor:
    return torch.randn(4)


def shifted(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    buffer = torch.randn(5).to(dtype)
    return buffer[:4], buffer[1:]


def overlapping() -> list[tuple[str, tuple, Any, str]]:
    a, b = shifted()
    c, d = shifted()
    e, f = shifted()
    one = t4()
    return [
        ("mix", (a, t4(), 1.0), b, "out overlaps x"),
        ("mix", (t4(), c, 1.0), d, "out overlaps w"),
        ("step", (e, f, t4(), 1.0), None, "p overlaps g"),
        ("step", (one, t4(), one, 1.0), None, "p overlaps m|share memory"),
        ("step", (t4(), one, t4(), 1.0), (one[:4],), ""),  # element by element: in one place it may lie
    ]


REFUSED: list[tuple[str, tuple, Any, str]] = [
    *overlapping(),
    ("mix", (freed(), t4(), 1.0), None, "x has no memory"),
    ("mix", (t4(), t4(), 1.0), freed(), "out has no memory"),
    ("mix", (negated(), t4(), 1.0), None, ""),
    ("mix", (t4(), t4(), 1.0), negated(), "out is a negated view"),
    ("step", (negated(), t4(), t4(), 1.0), None, "p is a negated view"),
    ("step", (inference(), t4(), t4(), 1.0), None, "p is an inference tensor"),
    ("step", (t4(), inference(), t4(), 1.0), None, ""),
    ("mix", (t4().requires_grad_(), t4(), 1.0), None, "x requires grad"),
    ("mix", (t4(), torch.nn.Parameter(t4()), 1.0), None, "w requires grad"),
    ("mix", (t4(), t4(), 1.0), t4().requires_grad_(), "out requires grad"),
    ("mix", (t4().to_sparse(), t4(), 1.0), None, "x is not a dense"),
    ("mix", (t4(), t4(), 1.0), t4().to_sparse(), "out is not a dense"),
    ("mix", (torch.ones(1, 4).to_mkldnn(), t4(), 1.0), None, "x is not a dense"),
    ("mix", (torch.nested.nested_tensor([t4(), t4()]), t4(), 1.0), None, "x is "),
    ("mix", (t4().to("meta"), t4(), 1.0), None, "x is on meta"),
    ("mix", (t4(), t4(), "1"), None, "a is a str, not a float"),
    ("mix", (t4(), t4(), True), None, "a is a bool"),
    ("mix", (t4(), t4(), torch.tensor(1.0)), None, "a is a Tensor"),
    ("mix", (t4(), t4(), 10**400), None, "a is too large"),
    ("mix", (t4(), t4(), 1.0, 1.5), None, "k is the float 1.5"),
    ("mix", (t4(), t4(), 1.0, 2**63), None, "too large for an i64"),
    ("mix", (t4(), t4()), None, "a is missing"),
    ("mix", (t4(), t4(), None), None, "a is a NoneType"),
    ("mix", (t4(), t4(), 1.0), (), "out has 0 tensors"),
    ("mix", (t4(), t4(), 1.0), (t4(), t4()), "out has 2 tensors"),
    ("mix", (t4(), t4(), 1.0), 3, "out is an int"),
    ("mix", (t4(), t4(), 1.0), (None,), ""),
]


@pytest.mark.parametrize(("name", "args", "out", "said"), REFUSED, ids=[f"{r[0]}-{k}" for k, r in enumerate(REFUSED)])
def test_what_is_refused_without_a_plan_is_refused_with_one(name: str, args: tuple, out: Any, said: str, request: Any) -> None:
    kernel = request.getfixturevalue(name)
    good = (t4(), t4(), 1.0) if name == "mix" else (t4(), t4(), t4(), 1.0)
    for _ in range(2):
        kernel(*good)
        kernel(*good, out=t4())
        kernel(torch.ones(1, 4), *good[1:]) if name == "mix" else None
    texts, results = [], []
    for run in (kernel._bound, kernel._run, kernel._run):
        try:
            results.append(run(args, {}, out, None))
            texts.append("")
        except kgen.KgenError as error:
            texts.append(str(error))
    assert len(set(texts)) == 1, texts
    assert bool(texts[0]) == bool(said) and any(part in texts[0] for part in said.split("|"))
    if name == "mix" and results:
        assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_wrong_names_and_targets_are_refused_with_a_plan(mix: kgen.Kernel) -> None:
    x, w = t4(), t4()
    mix(x, w, 1.0)
    for kwargs, said in (
        ({"z": 1}, "there is no parameter z"), ({"w": w}, "w is given twice"), ({"target": "triton"}, "does not run on cpu"),
        ({"target": "metal"}, "there is no target metal"),
    ):  # fmt: skip
        with pytest.raises(kgen.KgenError, match=said):
            mix(x, w, 1.0, **kwargs)
    with pytest.raises(kgen.KgenError, match="takes 4 arguments, not 5"):
        mix(x, w, 1.0, 2, 3)


def test_grad_mode_decides_whether_what_requires_grad_is_plain(mix: kgen.Kernel) -> None:
    x, w = torch.nn.Parameter(t4()), torch.nn.Buffer(t4())
    with torch.no_grad():
        for _ in range(2):
            y = mix(x, w, 2.0)
            assert torch.equal(y, x * w * 2 + 2) and type(y) is torch.Tensor and not y.requires_grad
        with pytest.raises(kgen.KgenError, match="out requires grad"):
            mix(x, w, 2.0, out=torch.empty(4, requires_grad=True))


def test_results_may_lie_where_an_argument_does(mix: kgen.Kernel) -> None:
    w = t4()
    for x in (torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 8)[:, ::2]):
        want = mix._bound((x, w, 0.5), {}, None, None)
        assert torch.equal(mix(x, w, 0.5, out=x), want)
        assert torch.equal(x, want)


def test_an_empty_out_is_resized_each_time(mix: kgen.Kernel) -> None:
    x, w = torch.randn(3, 4), t4()
    for _ in range(3):
        out = torch.empty(0)
        for _ in range(2):
            assert mix(x, w, 1.5, out=out) is out and torch.equal(out, mix(x, w, 1.5))


def test_no_more_plans_are_kept_than_allowed(mix: kgen.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "KEPT", 5)
    monkeypatch.setattr(fast, "LESSONS", 0)
    mix = kgen.loads(MIX)
    for _ in range(2):
        for n in range(12):
            x, w = torch.randn(2, n), torch.randn(n)
            torch.testing.assert_close(mix(x, w, 1.0), x * w + 2)
            assert len(mix._calls.plans) <= 5
    kept = [key[6][0] for key in mix._calls.plans]
    assert kept == [7, 8, 9, 10, 11]  # the oldest went first


def test_a_refused_call_leaves_no_plan(mix: kgen.Kernel) -> None:
    mix = kgen.loads(MIX)
    for args in (
        (torch.randn(3), torch.randn(4), 1.0),
        (torch.randn(3), torch.randn(3).half(), 1.0),
        (torch.arange(3), torch.arange(3), 1.0),
    ):
        with pytest.raises(kgen.KgenError):
            mix(*args)
    least = kgen.loads("least(x: f32[N]) -> y: f32[]\ny = min[N](x)\n")
    for _ in range(2):
        with pytest.raises(kgen.KgenError, match="min\\[N\\] of no elements"):
            least(torch.empty(0))
    assert not mix._calls.plans and not least._calls.plans


def test_kernels_with_plans_are_copied_and_pickled(mix: kgen.Kernel) -> None:
    x, w = t4(), t4()
    want = mix(x, w, 1.0)
    loaded = pickle.loads(pickle.dumps(mix))
    assert "_calls" not in loaded.__dict__
    for other in (copy.copy(mix), copy.deepcopy(mix), loaded):
        assert torch.equal(other(x, w, 1.0), want) and torch.equal(other(x, w, 1.0), want)


def test_threads_call_at_once(mix: kgen.Kernel, step: kgen.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "KEPT", 6)  # fewer than the shapes, so that plans come and go
    mix, failures, ready = kgen.loads(MIX), [], threading.Barrier(8)
    mix(t4(), t4(), 1.0)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        ready.wait()
        for _ in range(150):
            n = chance.randrange(1, 12)
            x, w, a = torch.full((seed + 1, n), float(seed)), torch.arange(float(n)), chance.random()
            if not torch.equal(mix(x, w, a, k=seed), (x * w * torch.tensor(a) + seed)):
                failures.append((seed, n, a))
            p, m = torch.zeros(n), torch.full((n,), float(seed))
            step(p, torch.ones(n), m, 2.0)
            if not torch.equal(p, -2 * m) or m[0] != seed + 1:
                failures.append((seed, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]
    assert len(mix._calls.plans) <= 6 + 8


def test_large_results_get_large_pages_with_a_plan_too(mix: kgen.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    advised: list[int] = []
    monkeypatch.setattr(memory, "advise", lambda t: advised.append(t.numel()) or t)
    n = memory.LARGE // 4 >> 10
    x, w = torch.randn(n, 1 << 10), torch.randn(1 << 10)
    for _ in range(3):
        torch.testing.assert_close(mix(x, w, 2.0), x * w * 2 + 2)
    mix(x[:-1], w, 2.0)  # which lies where something lay before
    assert advised == [n << 10] * 3


class _Own(torch.Tensor):
    pass


def _modes() -> dict[str, Any]:
    from torch.autograd import forward_ad
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Function(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    return {"function": Function, "dispatch": Dispatch, "dual": forward_ad.dual_level}


@pytest.mark.parametrize("how", ["function", "dispatch", "dual", "vmap", "grad", "jvp", "subclass", "requires", "compile"])
def test_what_is_special_goes_its_own_way(how: str, mix: kgen.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple] = []

    def special(self: Any, args: tuple, kwargs: dict, out: Any, target: Any) -> torch.Tensor:
        seen.append((len(args), sorted(kwargs), out, target))
        return (args[0] * args[1]).sum()

    monkeypatch.setattr(kgen.Kernel, "_special", special)
    x, w = t4(), t4()
    for _ in range(2):
        mix(x, w, a=1.0)
    assert not seen

    def call(x: Any) -> Any:
        return mix(x, w, a=1.0, target="cpp")

    with _modes()[how]() if how in ("function", "dispatch", "dual") else contextlib.nullcontext():
        if how == "vmap":
            torch.vmap(call)(x.expand(2, 4))
        elif how == "grad":
            torch.func.grad(call)(x)
        elif how == "jvp":
            torch.func.jvp(call, (x,), (x,))
        elif how == "compile":
            monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
            call(x)
        else:
            call({"subclass": x.as_subclass(_Own), "requires": x.clone().requires_grad_()}.get(how, x))
    assert seen == [(2, ["a"], None, "cpp")]


def test_tensors_without_memory_are_refused_with_a_plan(mix: kgen.Kernel) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, w = t4(), t4()
    mix(x, w, 1.0)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
    for args in ((fake, w, 1.0), (x, fake, 1.0)):
        with pytest.raises(kgen.KgenError, match="FakeTensor without memory"):
            mix._run(args, {}, None, None)
    with pytest.raises(kgen.KgenError, match="without memory"):
        torch.vmap(lambda v: mix._run((v, w, 1.0), {}, None, None))(x.expand(2, 4))
