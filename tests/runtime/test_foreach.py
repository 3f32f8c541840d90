"""Kernels over lists of tensors give what a call for each tuple gives, bit for bit, and refuse what those refuse."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import random
import threading
import types
import weakref
from array import array
from typing import Any

import pytest
import torch

import kgen
from kgen.errors import KgenError
from kgen.runtime import cpp_lists, fast, foreach
from tests import warm

MIX = "mix(x: T[..., N], w: T[N], s: f32[], a: float, k: int = 2) -> (y: T[..., N], z: f32[..., N])\ny = x * w * a + k\nz = x * s + N\n"
STEP = "step(p: T[...], g: T[...], m: f32[...], lr: float) -> (p': T[...], m': f32[...], y: f32[...])\nm' = m + g\np' = p - lr * m'\ny = g * 2\n"
PLACES = "places(x: f32[..., N]) -> y: f32[..., N]\ny = x + index[N]\n"
#: Of few and many elements: none, less than a tile, pieces that end anywhere, more than one piece.
SHAPES = [(), (0,), (1,), (7,), (512,), (513,), (3, 0, 2), (33, 70), (4, 5, 6), (2, cpp_lists.PIECE + 3), (cpp_lists.PIECE,), (90_001,)]


@pytest.fixture(scope="module", params=[False, True], ids=["python", "extension"], autouse=True)
def extension(request: pytest.FixtureRequest) -> Any:
    """Each test twice: without `kgen.runtime.fast`'s extension, and with it where it can be built."""
    with pytest.MonkeyPatch.context() as m:
        if not request.param or not fast.wait():
            m.setattr(fast, "EXTENSION", types.SimpleNamespace(module=None, settled=True))
        yield


@pytest.fixture(scope="module")
def step(extension: None) -> kgen.Kernel:
    return kgen.loads(STEP)


@pytest.fixture(scope="module")
def mix(extension: None) -> kgen.Kernel:
    return kgen.loads(MIX)


def laid_out(shape: tuple[int, ...], dtype: torch.dtype, how: int) -> torch.Tensor:
    """A random tensor: dense, transposed, with gaps, or one element into its storage."""
    if how == 1 and len(shape) > 1:
        return torch.randn(shape[::-1]).to(dtype).permute(*reversed(range(len(shape))))
    if how == 2 and shape:
        return torch.randn(*shape[:-1], 2 * shape[-1]).to(dtype)[..., ::2]
    if how == 3 and shape:
        return torch.randn(torch.Size(shape).numel() + 1).to(dtype)[1:].view(shape)
    return torch.randn(shape).to(dtype)


def cloned(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies that lie alike."""
    return [t.new_empty(t.numel() * 2 + 8).as_strided(t.shape, t.stride(), t.storage_offset() % 4).copy_(t) for t in tensors]


def drawn(rng: random.Random, dtypes: list[torch.dtype], hows: tuple[int, ...] = (0, 0, 0, 1, 2, 3)) -> list[list[torch.Tensor]]:
    """p, g and m for STEP, of all shapes in any layouts."""
    found: list[list[torch.Tensor]] = [[], [], []]
    for shape in rng.sample(SHAPES, len(SHAPES)):
        dtype = rng.choice(dtypes)
        for own, kind in zip(found, (dtype, dtype, torch.float32), strict=True):
            own.append(laid_out(shape, kind, rng.choice(hows)))
    return found


def same(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(x.dtype == y.dtype and x.shape == y.shape and torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_the_bits_are_those_of_single_calls(step: kgen.Kernel, seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    p, g, m = drawn(rng, [torch.float32, torch.bfloat16, torch.float64] if seed else [torch.float32])
    q, n = cloned(p), cloned(m)
    for lr in (0.5, 0.25, 2.0):  # the second call has a plan, and so has the third
        got = step.foreach(p, g, m, lr)
        want = [step(*own, lr) for own in zip(q, g, n, strict=True)]
        assert isinstance(got, list) and same(got, want) and same(p, q) and same(m, n)
        assert [y.stride() for y in got] == [y.stride() for y in want]


def test_tensors_alike_go_together(step: kgen.Kernel) -> None:
    p, g, m = drawn(random.Random(0), [torch.float32, torch.bfloat16], hows=(0, 3))
    step.foreach(p, g, m, 0.5)
    plan = list(step._foreach.plans.values())[-1]
    ((launches,),) = [list(plan.groups.values())]
    assert len(launches) == 2 and not plan.alone
    assert sum(len(group.members) for group, _ in launches) == sum(t.numel() > 0 for t in p)


def test_numbers_and_tensors_without_dims_are_shared_or_lists(mix: kgen.Kernel) -> None:
    shapes = [(3, 5), (5,), (2, 2, 5), (4, 7), (70_000,), (5,)]
    xs, ws = [torch.randn(s) for s in shapes], [torch.randn(s[-1]) for s in shapes]
    s, alphas = torch.tensor(3.0), [0.0, -0.0, 1.5, 1.5, float("nan"), 0.0]
    for given in (s, [torch.tensor(float(k)) for k in range(6)]):
        for a in (1.25, alphas, torch.tensor(alphas).tolist()):
            y, z = mix.foreach(xs, ws, given, a, k=[1, 2, 3, 4, 5, 6])
            for k, (x, w) in enumerate(zip(xs, ws, strict=True)):
                own = mix(x, w, s if given is s else given[k], a[k] if isinstance(a, list) else a, k + 1)
                assert torch.equal(own[0].view(torch.int32), y[k].view(torch.int32)) and torch.equal(own[1], z[k])


def test_results_go_where_out_says(mix: kgen.Kernel, step: kgen.Kernel) -> None:
    gelu = kgen.load("gelu")
    xs = [torch.randn(s) for s in SHAPES] + [torch.randn(6, 8).t(), torch.randn(64)[::2]]
    want = [gelu(x) for x in xs]
    assert same(gelu.foreach(iter(xs)), want)
    out = [torch.empty_like(x) for x in xs[:-1]] + [torch.empty(0)]  # which is given its shape
    versions = [t._version for t in out]
    assert gelu.foreach(xs, out=out)[2] is out[2] and same(out, want)
    assert all(t._version > v for t, v in zip(out[:-1], versions, strict=False) if t.numel())
    gelu.foreach(xs, out=xs)
    assert same(xs, want)
    ys, zs = [torch.empty(3), torch.empty(4)], [torch.empty(3), torch.empty(4)]
    got = mix.foreach([torch.ones(3), torch.ones(4)], [torch.ones(3), torch.ones(4)], torch.tensor(1.0), 1.0, out=(ys, zs))
    assert got[0][0] is ys[0] and got[1][1] is zs[1] and zs[1].tolist() == [5.0] * 4


def test_what_is_written_is_marked(step: kgen.Kernel) -> None:
    p, g, m = [[torch.randn(5), torch.randn(64)[::2]] for _ in range(3)]
    for _ in range(2):
        before = [t._version for t in (*p, *g, *m)]
        step.foreach(p, g, m, 0.1)
        assert [t._version > old for t, old in zip((*p, *g, *m), before, strict=True)] == [True, True, False, False, True, True]


def test_tensors_that_overlap_are_taken_in_order(step: kgen.Kernel) -> None:
    """As in a loop over single calls: a parameter that is listed twice takes two steps, with a plan and without."""
    for _ in range(2):
        p, g, m = torch.ones(40), torch.ones(40), torch.zeros(40)
        step.foreach([p, p], [g, g], [m, m], 0.5)
        assert torch.equal(p, torch.full((40,), 1 - 0.5 - 1.0)) and torch.equal(m, torch.full((40,), 2.0))
    whole = torch.arange(100.0)
    step.foreach([whole[:60], whole[50:]], [torch.ones(60), torch.ones(50)], [torch.zeros(60), torch.zeros(50)], 1.0)
    want = torch.arange(100.0)
    want[:60] -= 1
    want[50:] -= 1
    assert torch.equal(whole, want)
    gelu, x = kgen.load("gelu"), torch.randn(100)
    a, want = x.clone(), gelu(gelu(x[:50]))
    gelu.foreach([a[:50], a[:50]], out=[a[:50], a[:50]])
    assert torch.equal(a[:50], want)


def test_what_is_shared_is_read_before_it_is_written_or_after() -> None:
    """As a loop does: the second result reads what the first one wrote."""
    kernel = kgen.loads("f(x: f32[], z: f32[]) -> y: f32[]\ny = x + z\n")
    for _ in range(2):
        x, y = torch.tensor(1.0), torch.tensor(0.0)
        kernel.foreach(x, [torch.tensor(1.0), torch.tensor(2.0)], out=[x, y])
        assert (x.item(), y.item()) == (2.0, 4.0)


def test_an_overlap_that_a_call_refuses_is_refused_before_any_is_written(step: kgen.Kernel) -> None:
    p, g, m = ([torch.ones(20), torch.ones(20)] for _ in range(3))
    step.foreach(p, g, m, 0.0)
    whole = torch.ones(30)
    with pytest.raises(KgenError, match=r"p overlaps g in memory \(index 1 of the lists\)"):
        step.foreach([p[0], whole[:20]], [g[0], whole[10:]], m, 1.0)
    assert torch.equal(p[0], torch.ones(20))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda p, g, m: g.pop(), "p has 3 tensors and g has 2"),
        (lambda p, g, m: g.__setitem__(1, torch.ones(4).double()), r"T is f32 in p and f64 in g \(index 1 of the lists\)"),
        (lambda p, g, m: m.__setitem__(2, torch.ones(4).half()), r"m is f16, not f32 \(index 2 of the lists\)"),
        (lambda p, g, m: p.__setitem__(0, torch.ones(5)), r"the leading dims are \[5\] in p and \[4\] in g \(index 0 of the lists\)"),
        (lambda p, g, m: g.__setitem__(2, torch.ones(4, device="meta")), r"p is on cpu and g is on meta \(index 2 of the lists\)"),
        (lambda p, g, m: g.__setitem__(2, 3.0), r"g is a float, not a tensor \(index 2 of the lists\)"),
        (lambda p, g, m: p.__setitem__(1, torch.ones(4, requires_grad=True)), r"p requires grad \(index 1 of the lists\)"),
        (lambda p, g, m: p.__setitem__(1, torch.ones(1).expand(4)), r"elements of p share memory \(index 1 of the lists\)"),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_what_a_call_refuses_is_refused_with_its_index(change: Any, message: str, known: bool) -> None:
    kernel = kgen.loads(STEP)
    p, g, m = ([torch.ones(4) for _ in range(3)] for _ in range(3))
    if known:
        kernel.foreach(p, g, m, 0.0)
    change(p, g, m)
    kept = [t.detach().clone() for t in p]
    with pytest.raises(KgenError, match=message):
        kernel.foreach(p, g, m, 1.0)
    assert same([t.detach() for t in p], kept)


def test_what_is_no_list_is_refused(step: kgen.Kernel, mix: kgen.Kernel) -> None:
    x = [torch.ones(4)]
    for args, message in (
        ((torch.ones(4), x, x, 1.0), r"p is one tensor of shape \[4\], not a list"),
        ((torch.tensor(1.0), x, x, 1.0), r"p is one tensor of shape \[\], not a list"),
        ((x, 3, x, 1.0), "g is an int, not a list of tensors"),
        ((x, x, x, [1.0, 2.0]), "p has 1 tensor and lr has 2"),
        ((x, x, x, ["a"]), r"lr is a str, not a float \(index 0 of the lists\)"),
        ((x, x), "m, lr are missing"),
    ):
        with pytest.raises(KgenError, match=message):
            step.foreach(*args)
    with pytest.raises(KgenError, match="p has 1 tensor and out has 2"):
        step.foreach(x, x, x, 1.0, out=[torch.ones(4), torch.ones(4)])
    with pytest.raises(KgenError, match="out has 1 lists for 2 results"):
        mix.foreach(x, x, torch.tensor(1.0), 1.0, out=[x])
    with pytest.raises(KgenError, match="none of the arguments is a list"):
        kgen.load("gelu").foreach(torch.tensor(1.0))
    adamw = kgen.load("adamw")
    with pytest.raises(KgenError, match="out has 3 lists for 0 results") as error:
        adamw.foreach(x, [x[0] + 1], [x[0] + 2], [x[0] + 3], t=1, lr=0.1, out=(x, x, x))
    assert "p', m', v' are written in place" in str(error.value)


def test_empty_lists_give_empty_lists(step: kgen.Kernel, mix: kgen.Kernel) -> None:
    assert step.foreach([], [], [], 1.0) == [] and mix.foreach([], [], torch.tensor(1.0), 1.0) == ([], [])
    assert kgen.load("adamw").foreach([], [], [], [], t=1, lr=0.1) is None


def test_gradients_are_not_lost_unsaid() -> None:
    gelu, x = kgen.load("gelu"), torch.ones(3, requires_grad=True)
    with pytest.raises(KgenError, match="requires grad") as error:
        gelu.foreach([x])
    assert "torch.no_grad()" in str(error.value)
    with torch.no_grad():
        assert not gelu.foreach([x])[0].requires_grad
    with pytest.raises(KgenError, match=r"torch\.func"):
        torch.func.vmap(lambda x: gelu.foreach([x])[0])(torch.ones(2, 3))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(KgenError, match="forward differentiation"):
        gelu.foreach([torch.ones(3)])
    with torch.inference_mode():
        assert gelu.foreach([torch.ones(3)])[0].is_inference()


def test_tensors_that_are_out_of_the_ordinary(step: kgen.Kernel) -> None:
    """A negated view is read as what it stands for; a Parameter is written under no_grad."""
    negated = torch._neg_view(torch.ones(4))
    p, m = [torch.nn.Parameter(torch.zeros(4)), torch.zeros(4)], [torch.zeros(4), torch.zeros(4)]
    with torch.no_grad():
        y = step.foreach(p, [negated, torch.ones(4)], m, 1.0)
    assert [t.tolist() for t in y] == [[-2.0] * 4, [2.0] * 4] and [t[0].item() for t in p] == [1.0, -1.0]


@pytest.mark.parametrize("name", ["softmax", "layernorm"])
def test_kernels_that_reduce_go_tensor_by_tensor(name: str, built_quickly: None) -> None:
    kernel = kgen.load(name)
    n = len(kernel.kernel.params) - (name == "layernorm") - 1
    for _ in range(2):
        xs, more = [torch.randn(3, k) for k in (4, 9, 1)], [[torch.randn(k) for k in (4, 9, 1)] for _ in range(n)]
        assert same(kernel.foreach(xs, *more), [kernel(*own) for own in zip(xs, *more, strict=True)])


def test_positions_count_within_each_tensor() -> None:
    kernel, xs = kgen.loads(PLACES), [torch.zeros(3, 4), torch.zeros(40_000)]
    assert same(kernel.foreach(xs), [kernel(x) for x in xs])


@pytest.mark.parametrize("target", ["cpp", "torch"])
def test_targets(step: kgen.Kernel, target: str) -> None:
    p, g, m = ([torch.ones(4), torch.ones(2)] for _ in range(3))
    step.foreach(p, g, m, 1.0, target=target)
    assert [t[0].item() for t in p] == [-1.0, -1.0]
    with pytest.raises(KgenError, match="there is no target x"):
        step.foreach(p, g, m, 1.0, target="x")


def test_tensors_may_move_and_change(step: kgen.Kernel) -> None:
    """No table is stale: new gradients each call, storage that is exchanged, tensors that are resized."""
    p, m = [torch.zeros(5), torch.zeros(1000)], [torch.zeros(5), torch.zeros(1000)]
    total, kept = 0.0, []
    for k in range(6):
        g = [torch.full((5,), float(k)), torch.full((1000,), float(k))]
        kept.append(g)  # so that the next ones lie elsewhere
        if k == 3:
            p[0].data = torch.zeros(5) + p[0]
        step.foreach(p, g, m, 1.0)
        total += sum(range(k + 1))
        assert all(t.unique().tolist() == [-total] for t in p)
    p[0].resize_(3)
    with pytest.raises(KgenError, match="index 0"):
        step.foreach(p, g, m, 1.0)


def test_no_tensor_is_kept(step: kgen.Kernel) -> None:
    p, g, m = ([torch.ones(4), torch.ones(300)] for _ in range(3))
    y = step.foreach(p, g, m, 1.0)
    left = [weakref.ref(t) for t in (*p, *g, *m, *y)]
    del p, g, m, y
    gc.collect()
    assert not any(t() is not None for t in left)


def test_plans_are_bounded() -> None:
    gelu = kgen.load("gelu")
    for k in range(foreach.KEPT + 9):
        gelu.foreach([torch.ones(k), torch.ones(3)])
    assert len(gelu._foreach.plans) == foreach.KEPT


def test_threads_do_not_meet(step: kgen.Kernel) -> None:
    """Calls of one plan at once, on tensors of their own."""
    wrong = []

    def run(seed: int) -> None:
        for k in range(60):
            p, g, m = ([torch.full((n,), float(x)) for n in (7, 700, 20_000)] for x in (seed, 1 + k, 0))
            y = step.foreach(p, g, m, 1.0)
            if any((t != seed - 1 - k).any() for t in p) or any((t != 2 + 2 * k).any() for t in y):
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_kernels_with_lists_are_copied_and_pickled() -> None:
    kernel = kgen.loads(STEP)
    kernel.foreach([torch.ones(3)], [torch.ones(3)], [torch.ones(3)], 1.0)
    assert copy.deepcopy(kernel) is kernel
    again = pickle.loads(pickle.dumps(kernel))
    assert again.foreach([torch.ones(3)], [torch.ones(3)], [torch.ones(3)], 1.0)[0].tolist() == [2.0] * 3


def test_adamw_is_torch_s(steps: int = 20) -> None:
    """A small model's parameters beside torch.optim.AdamW's, foreach: both within a few roundings of the exact step in float64."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(30, 70), torch.nn.LayerNorm(70), torch.nn.Linear(70, 11), torch.nn.Embedding(12, 5))
    numbers = {"lr": 1e-2, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.1}
    theirs, ours = copy.deepcopy(model), [p.detach().clone() for p in model.parameters()]
    exact = copy.deepcopy(model).double()
    foreach_ = torch.optim.AdamW(theirs.parameters(), foreach=True, **numbers)
    double = torch.optim.AdamW(exact.parameters(), foreach=True, **numbers)
    ms, vs = ([torch.zeros_like(p) for p in ours] for _ in range(2))
    adamw = kgen.load("adamw")
    for t in range(1, steps + 1):
        grads = [torch.randn_like(p) for p in ours]
        for model_, kind in ((theirs, torch.float32), (exact, torch.float64)):
            for p, g in zip(model_.parameters(), grads, strict=True):
                p.grad = g.to(kind)
        adamw.foreach(ours, grads, ms, vs, t=t, lr=1e-2, b1=0.9, b2=0.98, eps=1e-8, wd=0.1)
        foreach_.step()
        double.step()
    for p, q, x in zip(ours, theirs.parameters(), exact.parameters(), strict=True):
        bound = 2**-24 * steps * (2 * x.abs().max() + 1)  # each step rounds p, and what is taken from it, once or twice
        assert (p - x).abs().max() <= bound and (p - q).abs().max() <= 2 * bound


def test_torch_compile_breaks_the_graph_there() -> None:
    gelu = kgen.load("gelu")

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [y + 1 for y in gelu.foreach([x * 2, x * 3])]

    x = torch.randn(10)
    torch._dynamo.reset()
    assert same(torch.compile(f, backend="eager")(x), f(x))


def test_parameters_may_be_called_as_keywords_are() -> None:
    kernel = kgen.loads("f(out: f32[...], target: float) -> y: f32[...]\ny = out * target\n")
    assert kernel.foreach(out=[torch.ones(2)], target=3.0)[0].tolist() == [3.0, 3.0]


def test_names_of_the_source_are_the_writers_too() -> None:
    text = "each(count: T[...], size: f32[], chunk: float, first: int) -> (own: T[...], n: f32[...], count': T[...])\n"
    kernel = kgen.loads(text + "own = count * chunk + first\nn = count * size\ncount' = count + own\n")
    body = kgen.loads("body(pieces: f32[...], begin: f32[...], k: float) -> piece: f32[...]\npiece = pieces * begin + k\n")
    own, n = kernel.foreach([torch.ones(3), torch.ones(4)], torch.tensor(2.0), 3.0, 4)
    assert own[1].tolist() == [7.0] * 4 and n[0].tolist() == [2.0] * 3
    assert body.foreach([torch.ones(3)], [torch.ones(3)], 1.0)[0].tolist() == [2.0] * 3


def test_the_source_over_lists_is_shown() -> None:
    adamw = kgen.load("adamw")
    for target, line in (("cuda", "adamw_each("), ("cpp", "void adamw_each(")):
        assert line in adamw.source(target, lists=True) and line not in adamw.source(target)
    for kernel, target in ((adamw, "triton"), (kgen.load("softmax"), "cuda")):
        with pytest.raises(KgenError, match=f"{target} launches once for each tensor"):
            kernel.source(target, lists=True)


def test_torch_dynamo_is_not_loaded() -> None:
    code = "import torch, kgen, sys; kgen.load('gelu').foreach([torch.ones(3)]); print('torch._dynamo.eval_frame' in sys.modules)"
    done = warm.run("-c", code)
    assert done.stdout.strip() == "False", done.stderr


def test_what_overlaps_is_found_with_and_without_the_extension() -> None:
    rng, module, answers = random.Random(0), fast.EXTENSION.module, []
    for _ in range(2000):
        n = rng.randint(0, 7)
        places = array("Q", [rng.randrange(60) for _ in range(n)])
        flat = [x for k in range(n) for x in (k, rng.randint(1, 9), rng.random() < 0.5)]
        pairs = array("q", [rng.randrange(n) for _ in range(2 * rng.randrange(3))] if n else [])
        joined = {b for a, b in zip(pairs[::2], pairs[1::2], strict=True) if places[a] == places[b]}
        spans = [
            (places[k], places[k] + size, wrote)
            for k, size, wrote in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
            if k not in joined
        ]
        want = not any(a[0] < b[1] and b[0] < a[1] and (a[2] or b[2]) for a, b in itertools.combinations(spans, 2))
        answers.append(want)
        assert foreach.apart(places, array("q", flat), pairs) == want
        assert module is None or module.apart(places, array("q", flat), pairs) == want
    assert 200 < sum(answers) < 1800


def test_the_extension_tells_tensors_apart() -> None:
    module = fast.EXTENSION.module
    if module is None:
        return
    x = torch.zeros(4, 6)
    with torch.inference_mode():
        inferred = torch.zeros(4, 6)
    several = [x, x.t(), x[:, :3], x[0], x.double(), x.half(), x.bfloat16(), inferred, torch.zeros(24), torch.zeros(0), torch.tensor(1.0)]
    keys = [foreach.described([t], learn=True) for t in several]
    assert len({key for key, _ in keys}) == len(several) and all(isinstance(key, bytes) for key, _ in keys)
    assert [places[0] for _, places in keys] == [t.data_ptr() for t in several]
    assert foreach.described([x] * 300)[0] == foreach.described([torch.ones(4, 6)] * 300)[0]
    for odd in (torch._neg_view(x), x.clone().requires_grad_(), x.to_sparse(), 3, torch.zeros((1,) * 65)):
        assert module.describe([x, odd], False) is None
