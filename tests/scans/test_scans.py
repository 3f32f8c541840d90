"""Scans: what the language says of them, what they are in torch, their passes, and their derivatives."""

from __future__ import annotations

import ast
import itertools
import math
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen import check, grad, pipeline, syntax  # noqa: E402
from kgen.errors import KgenError  # noqa: E402
from kgen.ops.scans import SCANS, attrs  # noqa: E402
from kgen.passes import Scan  # noqa: E402
from kgen.runtime.evaluate import Evaluator  # noqa: E402
from kgen.testing import checks  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from kgen.types import f32  # noqa: E402

FORMS = [(back, exclusive) for back in (False, True) for exclusive in (False, True)]
IDENTITY = {"cumsum": 0.0, "cumprod": 1.0, "cummax": -torch.inf, "cummin": torch.inf, "logcumsumexp": -torch.inf, "recur": 0.0,
            "cumsum_since": 0.0}  # fmt: skip


def step_by_step(a, b):
    h, every = torch.zeros_like(b[..., 0]), []
    for k in range(b.shape[-1]):
        h = a[..., k] * h + b[..., k]
        every.append(h)
    return torch.stack(every, -1)


def since_step_by_step(begins, x):
    h, every = torch.zeros_like(x[..., 0]), []
    for k in range(x.shape[-1]):
        h = torch.where(begins[..., k], x[..., k], h + x[..., k])
        every.append(h)
    return torch.stack(every, -1)


OWN = {"recur": step_by_step, "cumsum_since": since_step_by_step}


def scanned(op: str, back: bool, exclusive: bool, *given):
    """A scan of the last dim, as torch has it."""
    given = [x.flip(-1) if back else x for x in given]
    y = OWN[op](*given) if op in OWN else SCANS[op].torch(torch, *given, -1)
    if exclusive:
        y = torch.cat([torch.full_like(y[..., :1], IDENTITY[op]), y[..., :-1]], -1)
    return y.flip(-1) if back else y


def kernel(op: str, back: bool = False, exclusive: bool = False):
    args = SCANS[op].args
    header = ", ".join(f"{a}: {'bool' if a in SCANS[op].conditions else 'T'}[..., N]" for a in args)
    where = ", ".join(attrs("N", back, exclusive))
    return check.check(syntax.parse(f"f({header}) -> y: T[..., N]\n\ny = {op}[{where}]({', '.join(args)})\n", "f.k"))


def arguments(op: str, kind: str = "plain", shape=(2, 9), dtype=torch.float64):
    given = {a: torch.randn(shape, dtype=dtype) for a in SCANS[op].args}
    if kind == "ties":
        given = {a: x.round() for a, x in given.items()}
    if kind == "zeros":
        given = {a: torch.where(torch.rand_like(x) < 0.3, 0.0, x) for a, x in given.items()}
    return {a: x > 0.7 if a in SCANS[op].conditions else x for a, x in given.items()}


WHOLE = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")


@pytest.mark.parametrize("target", ["torch", pytest.param("cpp", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WHOLE)
def test_greatest_and_least_of_integers(name: str, target: str, built_quickly) -> None:
    """Those of unsigned ones too, which torch has none of: as NumPy has them, with the ends of the dtype before the first."""
    rng, kind = np.random.default_rng(5), np.dtype(name.replace("i", "int").replace("u", "uint"))
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    x = rng.integers(low, high, (3, 9), kind, endpoint=True)
    x[0, 3], x[1, 2], x[2, :] = high, low, np.sort(x[2])
    forms = [(op, *form) for op in ("cummax", "cummin") for form in FORMS]
    lines = [f"y{k} = {op}[{', '.join(attrs('N', back, exclusive))}](x)" for k, (op, back, exclusive) in enumerate(forms)]
    results = ", ".join(f"y{k}: {name}[M, N]" for k in range(len(lines)))
    found = kgen.loads(f"f(x: {name}[M, N]) -> ({results})\n\n" + "\n".join(lines) + "\n")(torch.from_numpy(x), target=target)
    for (op, back, exclusive), y in zip(forms, found, strict=True):
        own = x[:, ::-1] if back else x
        want = (np.maximum if op == "cummax" else np.minimum).accumulate(own, 1)
        if exclusive:
            want = np.concatenate([np.full((3, 1), low if op == "cummax" else high, kind), want[:, :-1]], 1)
        assert np.array_equal(y.numpy(), want[:, ::-1] if back else want), (op, back, exclusive)


@pytest.mark.parametrize("op", SCANS)
def test_gradients_are_those_of_torch(op: str) -> None:
    torch.manual_seed(0)
    for back, exclusive in FORMS:
        made = grad.backward(kernel(op, back, exclusive), save=False)
        for kind in ("plain", "ties", "zeros"):
            given = arguments(op, kind)
            leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in given.values()]
            y = scanned(op, back, exclusive, *leaves)
            named = {name: x for name, x in zip(given, leaves, strict=True) if x.requires_grad}
            dy = torch.randn_like(y)
            wanted = torch.autograd.grad(torch.where(torch.isfinite(y), y, 0.0), list(named.values()), dy)
            every = {**given, made.cotangents["y"]: dy}
            found = Evaluator(made.kernel, {p.name: every[p.name] for p in made.kernel.params}, "exact").run()
            got = dict(zip((r.name for r in made.kernel.results), found, strict=True))
            for name, want in zip(named, wanted, strict=True):
                assert torch.allclose(got[made.gradients[name]], want, rtol=1e-9, atol=1e-9), (op, back, exclusive, kind, name)


def derived(value: str, dy, x):
    """The gradient of a formula of x, as it is derived."""
    made = grad.backward(check.check(syntax.parse(f"f(x: f64[..., N]) -> y: f64[..., N]\n\ny = {value}\n", "f.k")), save=False)
    return Evaluator(made.kernel, {"dy": dy, "x": x}, "exact").run()[0]


@pytest.mark.parametrize("exclusive", [False, True])
def test_an_infinite_factor_is_in_the_gradients_that_it_multiplies(exclusive: bool) -> None:
    """Where none of the products that a factor is in is NaN, its gradient is their sum: nothing behind a row's end is a factor."""
    rows = torch.tensor(list(itertools.product((0.0, 2.0, -1.0, torch.inf), repeat=4)), dtype=torch.float64)
    dy = torch.tensor([1.0, 2.0, 3.0, 5.0], dtype=torch.float64)
    for back in (False, True):
        order = [3, 2, 1, 0] if back else [0, 1, 2, 3]
        got = derived(f"cumprod[{', '.join(attrs('N', back, exclusive))}](x)", dy.expand_as(rows), rows).tolist()
        for factors, found in zip(rows.tolist(), got, strict=True):
            for s in range(4):
                ends = [t for t in range(4) if s in order[: t + (not exclusive)]]
                want = sum(float(dy[order[t]]) * math.prod(factors[u] for u in order[: t + (not exclusive)] if u != s) for t in ends)
                assert want != want or found[s] == want, (factors, back, s)


def test_the_gradient_of_a_running_logsumexp_keeps_one_scan() -> None:
    """Of what stands before an element: from it follows what an element is a part of, infinite ones in the limit."""
    made = grad.backward(kernel("logcumsumexp")).kernel
    assert len(pipeline.plan(made, pipeline.usual(made)).workspaces) == 1
    x = torch.tensor([-torch.inf, -torch.inf, 1.0, 3.0, -torch.inf, torch.inf, 2.0, -torch.inf], dtype=torch.float64)
    dy, finite = torch.arange(1.0, 9.0, dtype=torch.float64), x.clone()[:5].requires_grad_()
    want = torch.autograd.grad(finite.logcumsumexp(0)[2:], finite, dy[2:5])[0].nan_to_num()
    assert torch.allclose(derived("logcumsumexp[N](x)", dy, x), torch.cat([want, torch.tensor([6.0 + 7 + 8, 0, 0], dtype=torch.float64)]))


@pytest.mark.parametrize("op", ["cummax", "cummin"])
def test_a_cotangent_stays_with_the_element_that_is_the_greatest(op: str) -> None:
    """As torch scatters them: one that is NaN or infinite touches no other."""
    torch.manual_seed(3)
    x, dy = torch.randn(40, dtype=torch.float64), torch.randn(40, dtype=torch.float64)
    dy[25], dy[30] = torch.nan, torch.inf
    leaf = x.clone().requires_grad_()
    want = torch.autograd.grad(getattr(torch, op)(leaf, 0).values, leaf, dy)[0]
    assert int(want.isfinite().sum()) > 36 and torch.allclose(derived(f"{op}[N](x)", dy, x), want, equal_nan=True)


@pytest.mark.slow  # a kernel of each dtype
def test_sums_begin_anew_on_the_cpu() -> None:
    torch.manual_seed(4)
    made = kgen.loads("since(x: T[..., N], k: i32[..., N], begins: bool[..., N]) -> (y: T[..., N], z: i64[..., N])\n\n"
                      "y = cumsum_since[N](begins, x)\nz = cumsum_since[N, reversed, exclusive](begins, k)\n")  # fmt: skip
    x, k, begins = torch.randn(3, 700, dtype=torch.float64), torch.randint(-9, 9, (3, 700), dtype=torch.int32), torch.rand(3, 700) < 0.05
    x[0, 3], x[1, 5] = torch.nan, torch.inf
    y, z = made(x, k, begins, target="cpp")
    assert torch.allclose(y, scanned("cumsum_since", False, False, begins, x), equal_nan=True)
    assert torch.equal(z, scanned("cumsum_since", True, True, begins, k.long()))


@pytest.mark.parametrize("op", SCANS)
def test_forward_mode_is_a_difference_quotient(op: str) -> None:
    torch.manual_seed(1)
    for back, exclusive in FORMS:
        made, given = grad.forward_mode(kernel(op, back, exclusive)), arguments(op)
        moved = {name: torch.randn_like(x) for name, x in given.items() if name in made.tangents}
        every = {**given, **{made.tangents[name]: t for name, t in moved.items()}}
        (got,) = Evaluator(made.kernel, {p.name: every[p.name] for p in made.kernel.params}, "exact").run()
        ends = [scanned(op, back, exclusive, *(x + s * 1e-6 * moved[n] if n in moved else x for n, x in given.items())) for s in (1, -1)]
        want = torch.where(torch.isfinite(ends[0]), (ends[0] - ends[1]) / 2e-6, 0.0)
        assert torch.allclose(got, want, rtol=1e-6, atol=1e-6), (op, back, exclusive)


@pytest.mark.parametrize("op", SCANS)
def test_bounds_hold_eager_float32(op: str) -> None:
    """Torch's own scans add one element after the other, which no bound here is for; of 100 elements they are within it all the same."""
    torch.manual_seed(2)
    given = arguments(op, shape=(3, 100), dtype=torch.float32)
    for back, exclusive in FORMS:
        made = kernel(op, back, exclusive)
        (found,) = Analysis(made, given, "cpp").results()
        (got,) = Evaluator(made, given, "kernel").run()
        off = torch.where(got.double() == found.exact, 0.0, (got.double() - found.exact).abs())
        assert bool((off <= found.bound).all()) and bool((found.bound[torch.isfinite(found.bound)] < 1e-2 * (1 + found.exact.abs().max())).all())


@pytest.mark.parametrize("op", ["cumsum", "logcumsumexp"])
def test_the_exact_reading_of_a_long_sum_is_within_a_small_part_of_its_bound(op: str) -> None:
    """Equal terms, each of whose roundings goes the same way: one after the other they leave the bound of a tree."""
    n, x = 28_001, -10.632
    given = {"x": torch.full((n,), x, dtype=torch.float64)}
    (found,) = Analysis(kernel(op, False, False), given, "cpp").results()
    want = [x * (k + 1) for k in range(n)] if op == "cumsum" else [x + math.log(k + 1) for k in range(n)]  # two roundings
    off = (found.exact - torch.tensor(want, dtype=torch.float64)).abs()
    assert bool((off <= found.bound / 4).all())


#: A formula, its operands, and the places at which a target may find a NaN where float64 finds a number.
OVERFLOWS = {
    "clamp(cumprod[N](x), -1, 1)": ((2, 3), [1e30, 1e30, 0.0, 1.0]),
    "atan2(cumprod[N, reversed](x), 1)": ((0, 1), [1.0, 0.0, 1e30, 1e30]),
    "clamp(cumsum[N](x), -1, 1)": ((2, 3), [3e38, 3e38, -3e38, -3e38]),
    "recur[N](a, x)": ((2, 3), [3e38, 3e38, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0]),  # the gradient of a running maximum is one such
    "recur[N](a, x) + 0": ((1, 2, 3), [1.0, 1.0, 1.0, 1.0], [1.0, torch.inf, 1.0, 1.0]),
    "recur[N](a * 3 - 0.3, x)": ((1, 2, 3), [torch.inf, 1.0, 1.0, 1.0], [0.1, 0.1, 0.1, 0.1]),  # a factor that rounds to 0
    "cumprod[N](x * 3 - 0.3)": ((1, 2, 3), [torch.inf, 0.1, 1.0, 1.0]),
    "0 + cumprod[N](x * 3 - 0.3)": ((2, 3), [1.0, 0.1, torch.inf, 1.0]),
    "clamp(recur[N, reversed](a, x), -1, 1)": ((0, 1), [1.0, 1.0, 3e38, 3e38], [1.0, 0.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("value", OVERFLOWS)
def test_where_parts_overflow_there_is_no_bound(value: str) -> None:
    """Infinity times 0, or less itself, is NaN, and no function behind makes a bound of it."""
    places, *operands = OVERFLOWS[value]
    given = dict(zip(("x", "a"), map(torch.tensor, operands), strict=False))
    made = check.check(syntax.parse(f"f({', '.join(f'{name}: T[N]' for name in given)}) -> y: T[N]\n\ny = {value}\n", "f.k"))
    (found,), (got,) = Analysis(made, given, "cpp").results(), Evaluator(made, given, "kernel").run()
    assert not checks.compare(got, found, got, checks.Report("f", "cpp"))
    got[list(places)] = torch.nan
    assert not checks.compare(got, found, got, checks.Report("f", "cpp"))
    assert checks.compare(torch.full_like(got, torch.nan), found, got, checks.Report("f", "cpp"))  # elsewhere there is one


@pytest.mark.parametrize("op", ["cummin", "cummax"])
@pytest.mark.parametrize("back", [False, True])
def test_an_infinity_that_loses_leaves_an_extreme_its_error(op: str, back: bool) -> None:
    """What is least so far was rounded in f32, with infinities before and behind it; the other infinity and NaN are what they are."""
    words = "N, reversed" if back else "N"
    made = check.check(syntax.parse(f"f(x: f32[N]) -> y: f64[N]\n\ny = {op}[{words}](x * 1.1 if abs(x) < inf else x)\n", "f.k"))
    inf = torch.inf
    x = torch.tensor([inf, 0.5, 0.25, 0.8, inf, inf, -inf, 1.0, torch.nan, 0.1]) * (1 if op == "cummin" else -1)
    given = {"x": x.flip(0) if back else x}
    (found,), (got,) = Analysis(made, given, "cpp").results(), Evaluator(made, given, "kernel").run()
    assert not checks.compare(got, found, got, checks.Report("f", "cpp"))
    for k, value in enumerate((0.0, 0.55001, 0.27501, 0.27501, 0.27501, 0.27501, 0.0, 0.0, 0.0, 0.0)):
        wrong = got.clone()
        wrong[-1 - k if back else k] = value if op == "cummin" else -value
        assert checks.compare(wrong, found, got, checks.Report("f", "cpp")), k


def test_integers_and_bools_are_added_in_64_bits() -> None:
    made = check.check(syntax.parse("f(k: i8[N], b: bool[N]) -> (y: i64[N], z: i64[N], m: i8[N])\n"
                                    "y = cumsum[N](k)\nz = cumprod[N, exclusive](b)\nm = cummin[N](k)\n", "f.k"))  # fmt: skip
    k, b = torch.tensor([100, 100, -3], dtype=torch.int8), torch.tensor([True, False, True])
    y, z, m = Evaluator(made, {"k": k, "b": b}).run()
    assert torch.equal(y, k.cumsum(0)) and z.tolist() == [1, 1, 0] and m.tolist() == [100, 100, -3] and m.dtype == torch.int8


WRONG = {
    "cumsum(x)": "goes along one dim",
    "cumsum[N, M](x)": "goes along one dim",
    "cumsum[...](x)": "goes along one named dim",
    "cumsum[N, reversed, reversed](x)": "stands twice",
    "cumsum[M](x)": "goes along M, which its operand does not have",
    "recur[N](x)": "takes 2 arguments",
    "cumsum_since[N](x, x)": "`begins` of `cumsum_since` is a condition",
    "logcumsumexp[N](i)": "of i32",
    "cummax[N](x > 0)": "of bool",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_scans_are_refused(text: str) -> None:
    with pytest.raises(KgenError) as error:
        kgen.loads(f"f(x: T[..., N], i: i32[N], w: T[M]) -> y: T[..., N]\n\ny = {text} + w * i\n")
    assert WRONG[text] in str(error.value)


def passes(text: str) -> list[str]:
    made = check.check(syntax.parse(text, "f.k"))
    plan = pipeline.plan(made, dict.fromkeys(made.variables, f32))
    return [type(p).__name__ + "".join("<" for _ in "b" if isinstance(p, Scan) and p.backwards) for p in plan.passes]


def test_scans_of_one_way_share_a_pass() -> None:
    head = "f(x: T[..., N], g: T[..., N]) -> y: T[..., N]\n\n"
    assert passes(head + "y = cumsum[N](x) * cummax[N](g) + 1") == ["Scan"]
    assert passes(head + "y = cumsum[N](x) + cumsum[N, reversed](g)") == ["Scan", "Scan<"]
    assert passes(head + "y = cumsum[N](x * sum[N](g)) / max[N](x)") == ["Reduce", "Scan"]
    assert passes(head + "y = cumsum[N](cumsum[N](x)) - g") == ["Scan", "Scan"]
    assert passes(head + "y = g / sum[N](cumsum[N](x))") == ["Scan", "Reduce"]
    assert passes(head + "y = cumsum[N](x[N = N - 1 - index[N]] + g)") == ["Reduce", "Scan"]


def test_scan_is_written_as_it_is_read() -> None:
    text = "f(x: T[..., N]) -> y: T[..., N]\n\ny = cumsum[N, reversed, exclusive](x) + recur[N](0.5, x)\n"
    assert kgen.loads(text).source("cpp")
    assert "cumsum[N, reversed, exclusive](x)" in "\n".join(t for _, _, t in check.check(syntax.parse(text, "f.k")).equations)


@pytest.mark.parametrize("text", [
    "f(x: T[..., N]) -> y: T[..., N]\n\ny = cumsum[N](x)\n",
    "f(x: T[3 * N, M]) -> y: T32[N, M]\n\ny = cumsum[N, exclusive](max[3](x))\n",  # T is told by no pointer: more constants than a line holds
    "f(x: f16[N]) -> y: f64[]\n\ny = max[N](cumprod[N](x * .5))\n",
])  # fmt: skip
def test_triton_kernels_are_given_what_they_read(text: str) -> None:
    """Each name in capitals that a jit function reads is its parameter, or stands in the module."""
    tree = ast.parse(kgen.loads(text).source("triton"))
    known = {n.id for node in tree.body if not isinstance(node, ast.FunctionDef) for n in ast.walk(node) if isinstance(n, ast.Name)}
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list):
        names = [n for node in function.body for n in ast.walk(node) if isinstance(n, ast.Name)]
        own = {a.arg for a in function.args.args} | {n.id for n in names if isinstance(n.ctx, ast.Store)} | known
        assert not {n.id for n in names if n.id.isupper()} - own, function.name


def test_threads_of_triton_scan_few_elements_of_f64() -> None:
    """What joins two partials stands in a kernel several times for each element of a thread: kernels of 32 took 25 seconds to compile."""
    source = kgen.loads("f(x: T[..., N]) -> y: T[..., N]\n\ny = logcumsumexp[N](x)\n").source("triton")
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "scanned_tiles"]
    triton = types.SimpleNamespace(next_power_of_2=lambda n: 1 << (n - 1).bit_length())
    exec(compile(tree, "tiles", "exec"), known := {"triton": triton})
    for n, word, across in itertools.product((1, 31, 1000, 4096, 70_001), (4, 8), (False, True)):
        rows, block, _, warps = known["scanned_tiles"](n, n, word, across)
        assert rows * block // (32 * warps) <= (32 if word == 4 else 8) and block >= min(n, 512), (n, word, across)


@pytest.mark.slow  # the bundled specs run there by default
def test_scans_run_on_the_cpu_along_any_dim() -> None:
    """Rows of several blocks, columns, slices, and a row like its like alone."""
    torch.manual_seed(3)
    made = kgen.loads("scans(a: T[..., N, M], b: T[..., N, M]) -> (h: T[..., N, M], s: T[..., N, M])\n\n"
                      "h = recur[N, exclusive](a, b) + index[N]\ns = logcumsumexp[N, reversed](b)\n")  # fmt: skip
    for shape in ((2, 1, 3), (1, 200, 5), (300, 2)):
        for turned in (False, True):
            a, b = torch.rand(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
            a, b = (x.transpose(-1, -2).contiguous().transpose(-1, -2) if turned else x for x in (a, b))
            h, s = made(a, b, target="cpp")
            last = [x.transpose(-1, -2) for x in (a, b)]
            want = scanned("recur", False, True, *last) + torch.arange(shape[-2])
            assert torch.allclose(h, want.transpose(-1, -2)) and torch.allclose(s, scanned("logcumsumexp", True, False, last[1]).transpose(-1, -2))
            alone = made(a[..., :1], b[..., :1], target="cpp")
            assert torch.equal(alone[0], h[..., :1]) and torch.equal(alone[1], s[..., :1])


def test_a_number_is_not_rounded_to_f32_where_the_scan_is_in_f64() -> None:
    kernel, x = kgen.loads("f(x: T[N], a: float) -> y: T[N]\n\ny = recur[N](a, x)\n"), torch.ones(2, dtype=torch.float64)
    assert kernel(x, 0.1, target="torch").tolist() == [1.0, 1.1]
