"""The brief, coarse and near forms of functions, and kgen's own f32 functions: their error, over a dense sample, with the machine's approximate
instructions taken as exact; what those add is at most 2^-21 (two units of f32 each, squared where a root is)."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from kgen.backends import backend  # noqa: E402
from kgen.backends import text as pieces  # noqa: E402
from kgen.backends.base import resource  # noqa: E402
from kgen.ops import OPS  # noqa: E402
from kgen.precision import BRIEF, COARSE, NEAR, SHIFT  # noqa: E402
from tests.cuda.emulated import ASM, SHIM  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
MACHINE = 2.0**-21
#: What its tanh adds, relatively (PTX ISA, tanh.approx.f32).
MACHINE_TANH = 2.0**-10.987
#: Factors of erfc's argument and of its value, which its forms have in their constants.
FACTORS = ((-0.7071067811865476, 0.5), (3.7, -0.3), (-0.02, 0.0001), (50.0, 1.0), (0.3, -1.0))


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    """Each function of one or two f32, as ctypes finds it: `brief_exp` for 16 bits, `sigmoid` as it stands."""
    folder = tmp_path_factory.mktemp("forms")
    named = [f"{form}_{name}" for name, row in OPS.items() if row.brief for form in ("brief", "near") if row.brief.named(form) == form]
    own = ["sigmoid", "hyperbolic_tangent", "error_complement", "exp_below", "sigmoid_slope", "tanh_slope<short>", "logarithm", "logarithm_1p", "coarser_sigmoid"]
    sources = pieces.functions(resource("templates") / "cuda", [*named, *(name.partition("<")[0] for name in own)], backend("cuda").columns())
    text = "\n".join(sources.values())
    for pattern, made in ASM:
        text = re.sub(pattern, made, text, flags=re.S)
    text = re.sub(r"asm\([^;]*;", ";", text).replace("hardware_inverse(x)", "1 / x")  # which MACHINE stands for
    entries = []
    for name in [*named, *own]:
        arity = OPS[name.partition("_")[2]].arity if name in named else 1
        arguments = ", ".join(["x[i]", "y[i]"][:arity])
        called = f"{name}<short>({arguments})" if name in named else f"{name}({arguments})"
        entries.append(f'extern "C" void call_{name.partition("<")[0]}(int n, const float* x, const float* y, float* r) {{ for (int i = 0; i < n; i++) r[i] = {called}; }}')
    for k, (scale, times) in enumerate(FACTORS):
        for form in ("brief", "near", "accurate"):
            called = f"error_complement(x[i], {scale}f, {times}f)" if form == "accurate" else f"{form}_erfc<short>(x[i], {scale}f, {times}f)"
            entries.append(f'extern "C" void call_{form}_erfc_{k}(int n, const float* x, const float*, float* r) {{ for (int i = 0; i < n; i++) r[i] = {called}; }}')
    place = folder / "forms.cpp"
    place.write_text(SHIM + "typedef unsigned long long u64; typedef long long i64; struct bf16 {};\n" + text + "\n".join(entries))
    done = subprocess.run(["g++", "-O1", "-std=c++17", "-ffp-contract=off", "-w", "-shared", "-fPIC", str(place), "-o", str(folder / "forms.so")],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(folder / "forms.so"))

    def call(name, x, y=None):
        r, y = torch.empty_like(x), x if y is None else y
        getattr(library, f"call_{name}")(len(x), *(ctypes.c_void_p(t.data_ptr()) for t in (x, y, r)))
        return r

    return call


def sample(least: float, most: float, n: int = 100_000):
    """Numbers all over an interval, ever closer to 0, and about 1."""
    torch.manual_seed(0)
    small, about = (torch.empty(n).uniform_(low, high).exp2() * torch.randn(n).sign() for low, high in ((-40, 3), (-20, 2)))
    return torch.cat([torch.empty(n).uniform_(least, most), small, 1 + about]).clamp(least, most)


def slope(x):
    return torch.sigmoid(x) * torch.sigmoid(-x)


#: Functions of one number, where their values are normal numbers of f32, and their exact values.
WHERE = [
    ("exp", (-87, 88), torch.exp), ("exp2", (-126, 127), torch.exp2), ("sigmoid", (-87, 100), torch.sigmoid), ("tanh", (-20, 20), torch.tanh),
    ("sigmoid_slope", (-87, 87), slope), ("erfc", (-10, 9), torch.special.erfc), ("sqrt", (0, 1e30), torch.sqrt), ("log", (2.0**-126, 1e38), torch.log),
    ("log1p", (-1 + 2.0**-20, 1e38), torch.log1p), ("expm1", (-87, 88), torch.expm1),
]  # fmt: skip


@pytest.mark.parametrize("name, interval, exact", WHERE)
def test_brief_forms_stay_within_their_bound(functions, name, interval, exact):
    x = sample(*interval)
    want = exact(x.double())
    assert ((functions(f"brief_{name}", x).double() - want).abs() <= (BRIEF - MACHINE) * want.abs()).all()


@pytest.mark.parametrize("name, interval, exact", WHERE)
def test_near_forms_stay_within_their_bound_about_a_near_argument(functions, name, interval, exact):
    x = sample(*interval)
    wide = x.double()
    want = exact(wide)
    moved = torch.maximum((exact(wide * (1 - SHIFT)) - want).abs(), (exact(wide * (1 + SHIFT)) - want).abs())
    form = OPS[name].brief.named("near")
    assert ((functions(f"{form}_{name}", x).double() - want).abs() <= (NEAR - MACHINE) * want.abs() + moved).all()


def test_the_slope_of_tanh_stays_within_its_bound_and_has_its_denormals(functions):
    x = sample(-52, 52)
    want = 4 * slope(2 * x.double())
    moved = torch.maximum(*((4 * slope(2 * x.double() * (1 + s)) - want).abs() for s in (-SHIFT, SHIFT)))
    assert ((functions("tanh_slope", x).double() - want).abs() <= (NEAR - MACHINE) * want + moved + 2.0**-148).all()
    ends = functions("tanh_slope", torch.tensor([torch.inf, -torch.inf, torch.nan, 1e38, -0.0]))
    assert torch.equal(ends.nan_to_num(7), torch.tensor([0.0, 0, 7, 0, 1]))


def test_the_coarse_sigmoid_stays_within_its_bound_whatever_its_value(functions):
    x = sample(-110, 110)
    moved = torch.tanh(x.double() / 2).abs() / 2 * MACHINE_TANH
    assert ((functions("coarser_sigmoid", x).double() - torch.sigmoid(x.double())).abs() + moved <= COARSE).all()
    ends = functions("coarser_sigmoid", torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0]))
    assert torch.equal(ends.nan_to_num(7), torch.tensor([1.0, 0, 7, 0.5]))


def test_every_form_has_its_test():
    tested = {name for name, _, _ in WHERE} | {"div"}
    assert tested == {name for name, row in OPS.items() if row.brief}


def test_a_brief_quotient_stays_within_its_bound_over_all_sizes(functions):
    torch.manual_seed(1)
    x, y = (torch.empty(200_000).uniform_(-126, 127).exp2() * torch.randn(200_000).sign() for _ in range(2))
    want = x.double() / y.double()
    normal = (want.abs() > 2.0**-125) & (want.abs() < 2.0**127)
    assert ((functions("brief_div", x, y).double() - want).abs() <= (NEAR - MACHINE) * want.abs())[normal].all()


def test_special_values_of_brief_forms_are_the_accurate_ones(functions):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([inf, -inf, nan, 0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 1e-39, 1e38, -1e38])
    for name, _, exact in WHERE:
        want = exact(x.double()).float()
        for form in {OPS[name].brief.named(form) for form in ("brief", "near")}:
            got = functions(f"{form}_{name}", x)
            assert torch.allclose(got, want, rtol=BRIEF, atol=0, equal_nan=True), (form, name, got, want)
            assert torch.equal(got[want == 0].signbit(), want[want == 0].signbit()), (form, name, got, want)
    x, y = (t.flatten() for t in torch.meshgrid(*[torch.tensor([inf, -inf, nan, 0.0, -0.0, 1.0, -2.0])] * 2, indexing="ij"))
    assert torch.equal(functions("brief_div", x, y).nan_to_num(7.0), (x / y).nan_to_num(7.0))


def test_small_results_keep_their_denormals(functions):
    x = torch.linspace(-103, -87.4, 1000)
    assert ((functions("brief_exp", x).double() - x.double().exp()).abs() <= BRIEF * x.double().exp() + 2.0**-148).all()
    assert ((functions("brief_sigmoid", x).double() - x.double().sigmoid()).abs() <= BRIEF * x.double().sigmoid() + 2.0**-148).all()
    x = torch.linspace(9, 10.2, 1000)
    assert ((functions("brief_erfc", x).double() - torch.special.erfc(x.double())).abs() <= BRIEF * torch.special.erfc(x.double()) + 2.0**-148).all()


@pytest.mark.parametrize("name, row, interval, exact", [
    ("sigmoid", "sigmoid", (-87, 100), torch.sigmoid), ("hyperbolic_tangent", "tanh", (-20, 20), torch.tanh),
    ("error_complement", "erfc", (-10, 9), torch.special.erfc), ("sigmoid_slope", "sigmoid_slope", (-87, 87), slope),
])  # fmt: skip
def test_own_f32_functions_stay_within_the_tables_bound(functions, name, row, interval, exact):
    x = sample(*interval)
    want = exact(x.double())
    unit = torch.ldexp(torch.ones_like(want), torch.frexp(want.abs())[1] - 24)
    assert (functions(name, x).double() - want).abs().div(unit).max() <= OPS[row].cuda.ulp[0] - 0.5


@pytest.mark.parametrize("name, row, interval, exact", [
    ("logarithm", "log", (0, 3.4e38), torch.log), ("logarithm_1p", "log1p", (-1, 3.4e38), torch.log1p),
])  # fmt: skip
def test_logarithms_stay_within_the_tables_bound_and_have_eagers_special_values(functions, name, row, interval, exact):
    """Of the machine's instruction they take the whole part alone, so that nothing is added to their error: of all sizes, of denormals,
    about 1 and 0, about where that part changes, and next to the ends."""
    every = torch.arange(0, 0x7F800000, 4099, dtype=torch.int32).view(torch.float32)
    about = torch.cat([k / 2 * (1 + torch.linspace(-1e-4, 1e-4, 20_001)) for k in (1, 2**0.5, 4 / 3, 1.5, 2, 2 * 2**0.5, 3)])
    near = torch.tensor([2.0**-149, 2.0**-127, 2.0**-126, 1 - 2.0**-24, 1 + 2.0**-23, 3.4028235e38, -(2.0**-149), -1 + 2.0**-24])
    x = torch.cat([every, -every, sample(*interval), sample(-1, 3), about, about - 1, near])
    x = x[(x.double() > interval[0]) & (x != 0)]
    want = exact(x.double())
    unit = torch.ldexp(torch.ones_like(want), torch.frexp(want.abs())[1].clamp(min=-125) - 24)
    assert (functions(name, x).double() - want).abs().div(unit).max() <= min(1.3, OPS[row].cuda.ulp[0])
    ends = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1.0, -1.0, -1.5, -1e-45, 1e-45, -3e38])
    got, eager = functions(name, ends), exact(ends.double()).float()
    assert torch.allclose(got, eager, rtol=2.0**-22, atol=0, equal_nan=True)
    assert torch.equal(got[eager == 0].signbit(), eager[eager == 0].signbit())


@pytest.mark.parametrize("k", range(len(FACTORS)))
def test_erfc_with_factors_stays_within_its_bounds(functions, k):
    scale, times = (torch.tensor(f, dtype=torch.float32) for f in FACTORS[k])
    x = torch.cat([sample(-10, 9), torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0])]) / scale
    exact = lambda moved: times.double() * torch.special.erfc(scale.double() * x.double() * moved)  # noqa: E731
    want, there = exact(1), ~x.isnan()
    moved, rounded = (torch.maximum((exact(1 - s) - want).abs(), (exact(1 + s) - want).abs()) for s in (SHIFT, 2.0**-24))
    unit = torch.ldexp(torch.ones_like(want), torch.frexp(want.abs())[1].clamp(min=-125) - 24)
    allowed = {"brief": (BRIEF - MACHINE) * want.abs() + 2.0**-148, "near": (NEAR - MACHINE) * want.abs() + moved + 2.0**-148,
               "accurate": (OPS["erfc"].cuda.ulp[0] - 0.5) * unit + rounded}  # fmt: skip
    for form, bound in allowed.items():
        got = functions(f"{form}_erfc_{k}", x)
        assert got[~there].isnan().all() and ((got.double() - want).abs() <= bound)[there].all(), form


def test_a_term_below_the_greatest_is_as_near_as_its_weight_allows(functions):
    x = -sample(0, 90).abs()
    off = (functions("exp_below", x).double() - x.double().exp()).abs()
    assert (off <= 2.0**-23 * (1 + x.double().abs()) * x.double().exp() + 2.0**-126).all()
