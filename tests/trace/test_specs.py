"""A traced function is the spec that says the same: the same program, the same source for every target."""

from __future__ import annotations

import inspect
import pickle
import re
import runpy
from pathlib import Path

import pytest
import torch

import kgen
from kgen.check import check
from kgen.lower import lower
from kgen.rewrite import rewrite
from kgen.runtime.kernel import read_spec
from kgen.syntax import parse
from kgen.testing.bounds import Analysis
from kgen.trace import to_spec, trace
from tests.trace.written import module

HEAD = "import torch\nimport torch.nn.functional as F\nimport kgen\n\n"

#: Specs as functions, in the language's own names.
SAME = {
    "softmax": '''
def softmax(x: "T[..., N]"):
    e = exp(x - max["N"](x))
    return e / sum["N"](e)
''',
    "layernorm": '''
def layernorm(x: "T[..., N]", w: "T[N]" = 1, b: "T[N]" = 0, eps: float = 1e-5):
    mu = mean["N"](x)
    c = x - mu
    return c * rsqrt(mean["N"](c**2) + eps) * w + b
''',
    "gelu": '''
def gelu(x: "T[...]"):
    return x * (0.5 * erfc(-x * sqrt(0.5)))
''',
    "gelu_tanh": '''
def gelu_tanh(x: "T[...]"):
    u = sqrt(2 / pi) * (x + 0.044715 * x**3)
    return x * sigmoid(2 * u)
''',
    "swiglu": '''
def swiglu(g: "T[...]", u: "T[...]"):
    return silu(g) * u
''',
    "causal_softmax": '''
def causal_softmax(s: "T[..., Q, K]") -> "p: T[..., Q, K]":
    z = s if index["K"] <= index["Q"] else -inf
    e = exp(z - max["K"](z))
    return e / sum["K"](e)
''',
    "cross_entropy": '''
def cross_entropy(x: "T[..., V]", t: "i64[...]", ignore: int = -100, smoothing: float = 0.0, z: float = 0.0) -> "loss: T32[...]":
    m = max["V"](x)
    s = log(sum["V"](exp(x - m)))
    nll = s - (pick["V"](x, t) - m)
    smooth = (1 - smoothing) * nll + smoothing * (s - mean["V"](x - m)) if smoothing != 0 else nll
    penalty = z * (s + m)**2 if z != 0 else 0.0
    return 0.0 if t == ignore else smooth + penalty
''',
    "adamw": '''
def adamw(p: "T[...]", g: "T[...]", m: "T32[...]", v: "T32[...]", t: int, lr: float,
          b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, wd: float = 1e-2
          ) -> "(p': T[...], m': T32[...], v': T32[...])":
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g**2
    u = (m / (1 - b1**t)) / (sqrt(v / (1 - b2**t)) + eps)
    p = p - lr * (u + wd * p)
    return p, m, v
''',
    "groupnorm": '''
def groupnorm(x: "T[B, G, C, S]", w: "T[G, C]" = 1, b: "T[G, C]" = 0, eps: float = 1e-5) -> "y: T[B, G, C, S]":
    c = x - mean["C", "S"](x)
    return c * rsqrt(mean["C", "S"](c**2) + eps) * w + b
''',
    "jsd": '''
def part(a, m):
    return 0.0 if a == 0 else a * log(a / m)

def jsd(p: "T[..., N]", q: "T[..., N]") -> "loss: T32[...]":
    m = 0.5 * (p + q)
    return 0.5 * sum["N"](part(p, m) + part(q, m))
''',
}  # fmt: skip


def traced(folder: Path, name: str, text: str):
    """The spec, and the function's kernel with the spec's comment for a docstring."""
    spec = check(parse(*read_spec(name)))
    lines = spec.doc.replace("\n", "\n    ")
    head, body = re.split(r":\n(?=    \w)", text[text.index(f"def {name}") :], maxsplit=1)
    before = text[: text.index(f"def {name}")]
    made = module(folder, f'{before}{head}:\n    """{lines}"""\n{body}', HEAD)
    return spec, trace(getattr(made, name))


@pytest.mark.parametrize("name", SAME)
def test_program_and_source_are_the_specs(tmp_path: Path, name: str) -> None:
    spec, kernel = traced(tmp_path, name, SAME[name])
    for binding in spec.bindings():
        assert str(rewrite(lower(kernel, binding))) == str(rewrite(lower(spec, binding)))
    for target in ("triton", "cuda", "cpp"):
        own = kgen.Kernel(kernel).source(target).replace(f"from {Path(kernel.file.source.name).name}", f"from {name}.k")
        assert own == kgen.Kernel(spec).source(target)


@pytest.mark.parametrize("name", SAME)
def test_to_spec_is_the_spec(tmp_path: Path, name: str) -> None:
    """The whole text, comment included; and that text is a kernel with the same values."""
    _, kernel = traced(tmp_path, name, SAME[name])
    text = to_spec(kernel)
    assert text == read_spec(name)[0]
    again = check(parse(text))
    assert (again.values, again.doc) == (kernel.values, kernel.doc)


def test_the_kernel_keeps_the_functions_face(tmp_path: Path) -> None:
    made = module(tmp_path, '''
@kgen.kernel
def scaled(x: "T[..., N]", *, by: float = 2.0):
    """Rows, scaled.

    At length.
    """
    # a comment with a µ
    return (x *
            by)
''', HEAD)  # fmt: skip
    k = made.scaled
    assert (k.__name__, k.__qualname__, k.__module__) == ("scaled", "scaled", made.__name__)
    assert k.__doc__ == "Rows, scaled.\n\n    At length.\n    "
    assert k.kernel.doc == "Rows, scaled.\n\nAt length."
    assert list(inspect.signature(k).parameters) == ["x", "by"] and inspect.signature(k) == inspect.signature(k.__wrapped__)
    assert k.to_spec() == "# Rows, scaled.\n#\n# At length.\nscaled(x: T[..., N], by: float = 2.0) -> y: T[..., N]\n\ny = x * by\n"
    x = torch.randn(3, 4)
    assert torch.equal(k(x, by=3.0, target="torch"), x * 3)
    assert "def scaled" in k.source("triton") and "store y" in k.show("program") and k.show("math")
    again = pickle.loads(pickle.dumps(k))
    assert again.to_spec() == k.to_spec() and not hasattr(again, "__wrapped__")


def test_show_check_and_formula_are_on_every_kernel(tmp_path: Path) -> None:
    for k in (kgen.load("softmax"), module(tmp_path, "@kgen.kernel" + SAME["softmax"], HEAD).softmax):
        (report,) = k.check(examples=5, target="torch")
        assert report.cases == 5 and not report.failures
        assert k.show("syntax").startswith("header softmax") and k.show("spec") == k.to_spec()
        assert k._repr_latex_().startswith("$") and r"e &= \exp\left(x - \max_{N}\left(x\right)\right)" in k._repr_latex_()


def test_a_check_that_fails_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    from kgen.testing import checks

    monkeypatch.setattr(checks, "held", lambda *_: checks.Finding("value", "wrong", at=(0, 0)))
    with pytest.raises(kgen.KgenError, match="result y: wrong"):
        kgen.load("softmax").check(examples=1, target="torch")


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ('def f(x: "T[..., N]"):\n    x = x + 1\n    x = x * 2\n    return x', "f(x: T[..., N]) -> y: T[..., N]\n\nx_1 = x + 1\ny   = x_1 * 2\n"),
        ('def f(x: "T[...]"):\n    h = x * 2\n    h += x\n    h -= 1\n    return h', "f(x: T[...]) -> h: T[...]\n\nh_1 = x * 2\nh_2 = h_1 + x\nh   = h_2 - 1\n"),
        ('def f(x: "T[...]", y: "f32[...]"):\n    return x * y, x > 0', "f(x: T[...], y: f32[...]) -> (y1: T32[...], y2: bool[...])\n\ny1 = x * y\ny2 = x > 0\n"),
        ('def f(x: "T[..., N]") -> "(q: i8[..., N], scale: T32[...])":\n    s = max["N"](abs(x)) / 127\n    return i8(round(x / s)), s',
         "f(x: T[..., N]) -> (q: i8[..., N], scale: T32[...])\n\nscale = max[N](abs(x)) / 127\nq     = i8(round(x / scale))\n"),
        ('def f(x: "T[..., N]") -> "T32[...]":\n    total = sum["N"](x)\n    return total', "f(x: T[..., N]) -> total: T32[...]\n\ntotal = sum[N](x)\n"),
        ('def f(p: "T[...]", g: "T[...]") -> "p\': T[...]":\n    step = p - 0.1 * g\n    return step', "f(p: T[...], g: T[...]) -> p': T[...]\n\np' = p - 0.1 * g\n"),
        ('def f(x: T[..., N], s=2.0, k=3):\n    return x * s + k', "f(x: T[..., N], s: float = 2.0, k: int = 3) -> y: T[..., N]\n\ny = x * s + k\n"),
        ('SLOPE, MODE, SHARP = -0.5, "tanh", True\ndef f(x: "T[...]"):\n    if MODE == "tanh" and SHARP:\n        x = tanh(x)\n    else:\n        x = exp(x)\n    return x * SLOPE',
         "f(x: T[...]) -> y: T[...]\n\nx_1 = tanh(x)\ny   = x_1 * -0.5\n"),
        ('def norm2(z):\n    n = z * z\n    return n + 1\ndef f(x: "T[...]"):\n    return norm2(x + 1) / norm2(x)',
         "f(x: T[...]) -> y: T[...]\n\nz   = x + 1\nn_1 = z * z\nn   = x * x\ny   = (n_1 + 1) / (n + 1)\n"),
        ('@kgen.kernel\ndef twice(x: "T[...]"):\n    return x + x\ndef f(x: "T[...]"):\n    return twice(x) * 2', "f(x: T[...]) -> y: T[...]\n\ntwice(x) = x + x\ny = twice(x) * 2\n"),
        ('import numpy as np\nHALF, TWO = np.float64(0.5), np.int32(2)\nTHIRD = np.float32(1 / 3)\ndef f(x: "T[...]") -> "torch.Tensor":\n    return x * HALF + TWO * THIRD',
         "f(x: T[...]) -> y: T[...]\n\ny = x * 0.5 + 2 * 0.3333333432674408\n"),
        ('def f(x: "T[..., N]"):\n    m, _ = x.max(-1, keepdim=True)\n    return x - m', "f(x: T[..., N]) -> y: T[..., N]\n\nm = max[N](x)\ny = x - m\n"),
        ('def f(x: "T[..., N]", w: "T[N]"):\n    """A doc\n    of two lines."""\n    h = x.float()\n    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)\n    return h.type_as(x) * w',
         "# A doc\n# of two lines.\nf(x: T[..., N], w: T[N]) -> y: T[..., N]\n\nh_1 = f32(x)\nh   = h_1 * rsqrt(mean[N](h_1^2) + 1e-6)\ny   = T(h) * w\n"),
    ],
)  # fmt: skip
def test_a_function_reads_as_the_spec(tmp_path: Path, text: str, spec: str) -> None:
    made = module(tmp_path, text + "\n", "from __future__ import annotations\n" + HEAD)
    assert to_spec(trace(made.f)) == spec
    check(parse(spec))


def test_closures_methods_and_modules(tmp_path: Path) -> None:
    made = module(tmp_path, '''
def outer(slope):
    @kgen.kernel
    def inner(x: "T[...]"):
        return F.leaky_relu(x, slope)
    return inner

class Holder:
    @staticmethod
    @kgen.kernel
    def first(x: "T[...]"):
        return x * 2

    @kgen.kernel
    @staticmethod
    def second(x: "T[...]"):
        import torch.nn.functional as G
        return G.silu(x)
''', HEAD)  # fmt: skip
    x = torch.linspace(-3, 3, 7)
    assert torch.equal(made.outer(0.25)(x, target="torch"), torch.where(x > 0, x, x * 0.25))
    assert torch.equal(made.Holder.first(x, target="torch"), x * 2)
    assert torch.equal(made.Holder().first(x, target="torch"), x * 2)
    assert torch.allclose(made.Holder.second(x, target="torch"), torch.nn.functional.silu(x))


@pytest.mark.usefixtures("built_quickly")
def test_a_traced_kernel_runs_on_the_cpu(tmp_path: Path) -> None:
    """Compiled, in bf16: a cast to the variable stands behind a reduction here, and a scratch name of C++ before it."""
    made = module(tmp_path, """
@kgen.kernel
def norm(x: "T[..., N]", g: "T[..., N]", filled: "T[N]", eps: float = 1e-6):
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
    return h.to(x.dtype) * filled * F.silu(g)
""", HEAD)  # fmt: skip
    given = {k: torch.randn(shape).bfloat16() for k, shape in (("x", (5, 33)), ("g", (5, 33)), ("filled", (33,)))}
    (want,) = Analysis(made.norm.kernel, {**given, "eps": 1e-6}, "cpp").results()
    got = made.norm(**given, target="cpp")
    assert got.dtype == torch.bfloat16 and bool(((got.double() - want.exact).abs() <= want.bound).all())


def test_importing_and_tracing_leave_torch_alone(tmp_path: Path) -> None:
    """A function in kgen's own words is traced without torch."""
    import subprocess
    import sys

    path = tmp_path / "plain.py"
    path.write_text(
        "import sys\nfrom kgen.trace import trace\n" + SAME["softmax"] + "\ntrace(softmax)\nassert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin"},
    )
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------------------------ sizes that follow from others


SIZED = '''
@kgen.kernel(where="P = (B + 3) // 4 * 4")
def ragged(x: "T[S, D]", offsets: "i64[B + 1]") -> "y: T[P, D]":
    begin = pick["B + 1"](offsets, index["P"])
    end = pick["B + 1"](offsets, index["P"] + 1)
    own = (begin <= index["S"]) and (index["S"] < end)
    return sum["S"](x if own else 0)


@kgen.kernel(where="H = (N + s - 1) // s, G = 2")
def steps(x: "T[..., N]", s: int) -> "(y: T[..., H], z: T[..., H, G])":
    y = pick["N"](x, s * index["H"])
    return y, y * index["G"]


class Taken:
    by = 2

    @kgen.kernel(where="H = N // 2")
    def first(self, x: "T[..., N]") -> "y: T[..., H]":
        return pick["N"](x, index["H"]) * self.by
'''


@pytest.mark.usefixtures("built_quickly")
def test_a_decorator_says_sizes_as_a_header_does(tmp_path: Path) -> None:
    """The kernels are those of the specs that say the same, and `to_spec` says it."""
    sized = module(tmp_path, HEAD + SIZED)
    ragged, steps = sized.ragged, sized.steps
    for made, head, body in (
        (ragged, "ragged(x: T[S, D], offsets: i64[B + 1]) -> y: T[P, D] where P = (B + 3) // 4 * 4",
         "begin = pick[B + 1](offsets, index[P])\nend = pick[B + 1](offsets, index[P] + 1)\n"
         "y = sum[S](x if begin <= index[S] and index[S] < end else 0)"),
        (steps, "steps(x: T[..., N], s: int) -> (y: T[..., H], z: T[..., H, G]) where H = (N + s - 1) // s, G = 2",
         "y = pick[N](x, s * index[H])\nz = y * index[G]"),
    ):  # fmt: skip
        assert head in made.to_spec()
        again = kgen.loads(made.to_spec()).kernel
        assert again.values == made.kernel.values and again.signature() == made.kernel.signature()
        spec = kgen.loads(f"{head}\n\n{body}\n")
        given = {"x": torch.randn(9, 4)} | ({"offsets": torch.tensor([0, 3, 3, 9])} if made is ragged else {"s": 3})
        for a, b in zip(_several(made(**given, target="torch")), _several(spec(**given, target="torch")), strict=True):
            assert torch.equal(a.nan_to_num(7), b.nan_to_num(7))
    x = torch.randn(3, 7)
    assert torch.equal(steps(x, 3, target="torch")[0], x[:, ::3])
    assert torch.equal(sized.Taken().first(x), x[:, :3] * 2)


def _several(found) -> tuple:
    return found if isinstance(found, tuple) else (found,)


NAMED = {  # the clause, and what is returned
    "P = N + 3": ("torch.exp(F.pad(x, (2, 1), value=1.5))", "F.pad(torch.exp(x), (2, 1))", "F.pad(x, (0, 3)) * 2"),
    "P = N - 1": ("x[..., 1:] - x[..., :-1]", "x[..., :-1]"),
    "P = N - 2": ("x[..., 1:-1] + 1", "x[..., 2:] + x[..., :-2] - x[..., 1:-1]"),
}


def test_a_part_and_a_padded_tensor_have_the_size_that_the_decorator_names(tmp_path: Path) -> None:
    x, k = torch.randn(2, 9), 0
    for where, bodies in NAMED.items():
        for k, body in enumerate(bodies):
            text = f'@kgen.kernel(where="{where}")\ndef f{k}(x: "T[..., N]") -> "y: T[..., P]":\n    return {body}\n'
            made = vars(module(tmp_path, HEAD + text))[f"f{k}"]
            assert torch.equal(made(x, target="torch"), made.__wrapped__(x)), body
    with pytest.raises(kgen.KgenError, match="a size that has no name"):
        module(tmp_path, HEAD + text.replace(body, "F.pad(x, (1, 1))"))


@pytest.mark.parametrize(
    ("where", "message", "at"),
    [("H = (N + 1) / 2", "`/` is no part of a size", "(N + 1) / 2"), ("H = N, H = M", "the size of H is given twice", "H"),
     ("H = N // 2 +", "the text ends in the middle of a statement", "H = N // 2 +"), ("H = N + z", "`z` is not defined", "z")],
)  # fmt: skip
def test_what_is_wrong_with_sizes_is_told_in_the_decorator(where: str, message: str, at: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(f'import kgen\n\n\n@kgen.kernel(where="{where}")\ndef f(x: "T[M, N]") -> "y: T[M, H]":\n'
                    '    return pick["N"](x, index["H"])\n')  # fmt: skip
    with pytest.raises(kgen.KgenError, match=message) as caught:
        runpy.run_path(str(file))
    found = next(d for d in caught.value.diagnostics if message in d.message)
    assert found.span is not None and caught.value.source is not None
    assert caught.value.source.place(found.span.start)[0] == 4
    assert caught.value.source.text[found.span.start : found.span.end].strip("\"(") in (at, at.strip("("))
