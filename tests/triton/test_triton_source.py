"""The emitted Triton modules: they compile for every target without a warning, their PTX is as fast code looks, their
host functions run under the interpreter, and numbers are computed as `kgen.host` computes them."""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from kgen import host, syntax
from kgen.backends import backend
from kgen.check import check
from kgen.errors import KgenError
from kgen.ops import OPS
from kgen.runtime import toolchain
from kgen.types import BOOL, DTYPES, FLOAT, INT
from tests import warm

triton = pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("torch", reason="torch is not installed")
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.k"))
TARGETS = {"sm_80": GPUTarget("cuda", 80, 32), "sm_90": GPUTarget("cuda", 90, 32), "sm_100": GPUTarget("cuda", 100, 32),
           "gfx942": GPUTarget("hip", "gfx942", 64)}  # fmt: skip
POINTERS = {"torch.float16": "*fp16", "torch.bfloat16": "*bf16", "torch.float32": "*fp32", "torch.float64": "*fp64", "torch.int8": "*i8",
            "torch.uint8": "*u8", "torch.int16": "*i16", "torch.int32": "*i32", "torch.int64": "*i64", "torch.bool": "*i1"}  # fmt: skip
VARIANTS = ("torch.bfloat16", "torch.float64")


def table(dtype: str) -> str:
    """A spec with a result for every operator of the table on tensors of one dtype."""
    kind = "bool" if dtype == "bool" else "float" if dtype[0] == "f" else "int"
    infix = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
             "gt": ">", "ge": ">=", "bitand": "&", "bitor": "|", "and": "and", "or": "or", "shl": "<<", "shr": ">>"}  # fmt: skip
    prefix = {"neg": "-", "pos": "+", "not": "not ", "bitnot": "~"}
    results, lines = [], []
    for k, op in enumerate(OPS.values()):
        rules = {"float": ("logical", "bits", "shift", "words"), "int": ("logical", "float"), "bool": ("float", "shift")}[kind]
        if op.rule in rules or kind == "bool" and not op.bools or op.name == "stop":
            continue
        args = ("a", "b", "c")[: op.arity]
        text = (
            f" {infix[op.name]} ".join(args)
            if op.name in infix
            else prefix[op.name] + args[0]
            if op.name in prefix
            else f"{op.name}({', '.join(args)})"
        )
        if op.name == "where":
            text = "b if a > b else c"
        boolean = op.rule in ("compare", "test", "logical") or kind == "bool"
        results.append(f"r{k}: {'bool' if boolean else 'i64' if op.rule == 'words' else dtype}[N]")
        lines.append(f"r{k} = {text}")
    return f"table_{dtype}(a: {dtype}[N], b: {dtype}[N], c: {dtype}[N]) -> ({', '.join(results)})\n" + "\n".join(lines)


TRICKY = {
    "stored": """stored(x: T[N], p: f32[N], s: float) -> (m: T[N], k: i64[N], p': f32[N], z: f64[])
m = N * 2
k = N // 3
p' = s * 2
z = s + m""",
    "inside": "inside(x: f32[..., M, N], a: i32[M, N]) -> (q: i16[..., M, N], r: f32[..., M, N])\nq = i16(i16(x))\nr = f32(~bool(x)) + f32(a)",
    "affine": "affine(x: T[..., N], b: T[N]) -> y: T[..., N]\ny = x * 2 + b",
    "scaled": "scaled(x: T[...], a: float = 0.1) -> y: T[...]\ny = x * a + 2",
    "adamish": "adamish(p: T[...], g: T[...], m: f64[...], t: int, lr: float, b1: float = 0.9) -> (p': T[...], m': f64[...])\n"
    "m' = b1*m + (1 - b1)*g\np' = T(p - lr*m' / (1 - b1^t))",
    "middle": "middle(x: T[B, C, ...], w: T[C]) -> y: T[B, C, S]\ny = x * w".replace("[B, C, ...]", "[..., C, S]").replace("T[B, C, S]", "T[..., C, S]"),
    "turned": "turned(x: T[M, N]) -> y: T[N, M]\ny = x + 1",
    "passes": "passes(p: T[N], x: T[..., N]) -> (p': T[N], y: T[..., N], n: i64[..., N])\np' = 2 * p\ny = x * p\nn = (index[N] + 0 * i64(x > 0)) * 2 + N",
    "position": "position(x: T[..., M, N]) -> y: T[..., M, N]\ny = x + index[N] + 100 * index[M]".replace("M, N]", "M, N]"),
    "bools": "bools(a: bool[N], b: bool[N]) -> (c: bool[N], d: bool[N])\nc = a and not b\nd = a <= b",
    "into": "into(x: f64[N]) -> (i: i8[N], u: u8[N], h: bf16[N])\ni = i8(x)\nu = u8(x)\nh = x",
    "forget": "forget(p: T[...]) -> p': T[...]\np' = 2.5",
    "nasty": "print(torch: T[N], tl: T[N], n: float, numel: float, x_ptr: T[N]) -> lambda: T[N]\nfirst = torch * n + tl\nsizes = first * numel\nlambda = sizes - x_ptr",
    "nasty2": "offset(x: T[N], x_ptr: T[N], F: float, x_at: T[N], x_0: T[N], s0: float, lane: float, mask: float) -> (out: T[N], tensors: T[N])\n"
    "h = x * F + x_ptr * s0 + x_at ^ 0.5\nout = h * lane\ntensors = x_0 / mask + sqrt(s0 * F)",
    "two": "two(x: T[..., N], w: U[N], k: i32[N]) -> (y: T[..., N], z: U[..., N], q: u8[N])\ny = x * w + k\nz = U(x) * 0.1\nq = u8(k) + 250",
    "double": "double(x: f64[N], i: i64[N], c: bool[N]) -> (y: bf16[N], z: f16[N], v: f64[N], w: i64[N])\n"
    "y = x * 0.1\nz = f16(x) + f16(i) + bf16(i)\nv = (0.1 if c else 0.2) + max(x, 0.3)\nw = 3000000000 if c else i + 5000000000",
    "ints": "ints(a: i8[N], b: u8[N], c: i16[N], d: i32[N], e: i64[N]) -> (p: i8[N], q: u8[N], r: i16[N], s: i32[N], t: i64[N], f: f32[N])\n"
    "p = a * 3 + 100 - (a // 7)\nq = b + 200 if b > 3 else ~b\nr = a + b + (c % -3)\ns = (d << 3) ^ 2\nt = 2 ^ e + (e >> 1) + b\nf = a / b + c",
    "numbers": "numbers(x: T[N], t: int, a: float, j: int = -0x10, k: float = inf, z: float = 010) -> (y: T[N], i: i64[N])\n"
    "y = x * (1 / t) + log(a) * sigmoid(a) + (a if t > 3 else 2) + k + (0.5)^t + z\ni = i64(x) + t * 3 // j - t",
    "literals": "literals(x: T[N], f: f32[N]) -> (y: T[N], z: f32[N], c: T[N])\n"
    "y = x * -0.0 + 1e300 + 0.1000000014901161193847656250001 + x ^ 0.3\nz = f * 1e300 + 1e-45 + (f if f > -0.1 else 3)\nc = 0.1",
    "stranded": "stranded(x: T[N], w: U[M]) -> (y: T[N], z: U[M])\ny = T(U(x) / 3)\nz = U(T(w))",
    "wide": "wide(s: T32[N], x: T[..., N]) -> (y: T32[..., N], h: T[..., N], s': T32[N])\n"
    "y = T32(x) * s\nh = T(s) + x / size[...](x)\ns' = s * 2",
    "clash": "clash(x: F[N], y: G[N]) -> z: F[N]\nz = F(x * y) + G(y)",
    **{f"table_{d}": table(d) for d in ("f32", "f64", "i8", "u8", "i16", "i32", "i64", "bool")},
}  # fmt: skip
SLOW_ON_DEFAULT = {"table_i16", "table_u8", "table_i32", "table_i64", "table_f64"}


def emit(text: str, folder: Path, name: str):
    """The module that kgen writes for a spec, imported from a file."""
    path = folder / f"{name}.py"
    path.write_text(backend("triton").render(check(syntax.parse(text, f"{name}.k"))))
    spec = importlib.util.spec_from_file_location(f"emitted_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kernels(module):
    return [f for n, f in vars(module).items() if n.endswith("_kernel") and hasattr(f, "params")]


def build(module, kernel, types: dict[str, str], target: str, kind: str = "rows", rank: int = 2, wide: bool = False, block: int = 1024,
          kinds: tuple[str, ...] = (), warps: int = 4):  # fmt: skip
    """One variant compiled; `types` gives each dtype variable."""
    source = Path(module.__file__).read_text()
    call = re.search(rf"launch\(\s*{kernel.__name__},.*?\n    (?=launch|return|\w+ =|$)", source + "\n    return", re.S).group()
    groups = re.findall(r"\(([^()]*)\)", call.replace(kernel.__name__, "", 1))
    names = [n.strip().strip('"') for n in groups[0].split(",") if n.strip()]
    tensors = [n for n in names if not n.startswith("index[")]
    written = [n.strip().strip('"') for n in groups[1].split(",") if n.strip()]
    signature, constants = {}, {}
    pointers = iter(tensors)
    kinds = kinds or tuple("flat" if n in written or kind == "flat" else "any" if n.startswith("index[") else kind for n in names)
    given = {"KINDS": kinds, "RANK": rank, "INDEX": tl.uint64 if wide else tl.uint32, "BLOCK": block, "ROWS": 4}
    for p in kernel.params:
        if p.is_constexpr:
            signature[p.name] = "constexpr"
            constants[p.name] = given[p.name] if p.name in given else module.FLOATS[_torch(types[p.name])]
        elif p.num < len(tensors):
            dtype = module.TENSORS[next(pointers)][0]
            wide = {f"{v}32": d if d == "torch.float64" else "torch.float32" for v, d in types.items()}
            signature[p.name] = POINTERS[(types | wide)[dtype] if isinstance(dtype, str) else str(dtype)]
        else:
            signature[p.name] = p.annotation_type
    attrs = {(k,): [["tt.divisibility", 16]] for k in range(len(tensors))}
    options = {"num_warps": warps, "enable_fp_fusion": False} | ({} if target.startswith("gfx") else {"enable_reflect_ftz": False})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = triton.compile(ASTSource(kernel, signature, constants, attrs), target=TARGETS[target], options=options)
    assert made.asm.get("cubin") or made.asm.get("hsaco")
    if not target.startswith("gfx"):
        ptx = made.asm["ptx"]
        assert not re.findall(r"\b(?:mul|add|sub)\.f(?:32|64)\b", ptx), "these ptxas may fuse"
        assert not [f for f in re.findall(r"\b[a-z0-9.]+\.ftz\.[a-z0-9.]+", ptx) if not re.match(r"(ex2|lg2|rcp|rsqrt)\.approx\.ftz", f)]
    return made


def _torch(name: str):
    import torch

    return getattr(torch, name.split(".")[1])


def choices(module, dtypes) -> list[dict[str, str]]:
    variables = sorted({d[0] for d, _ in module.TENSORS.values() if isinstance(d, str)})  # T of T and of T32
    return [dict(zip(variables, c, strict=True)) for c in itertools.product(dtypes, repeat=len(variables))]


def spec_or_skip(path: Path, folder: Path):
    try:
        return emit(path.read_text(), folder, path.stem)
    except KgenError as error:
        if "no code is generated for reductions yet" in str(error):
            pytest.skip("a reduction")
        raise


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW_ON_DEFAULT or k % 2 else ()) for k, n in enumerate(TRICKY)])
def test_tricky_specs_compile(name, tmp_path):
    """Each second one by default; of one dtype variable in bf16 or f64, by turns."""
    module = emit(TRICKY[name], tmp_path, name)
    assert kernels(module)
    for kernel in kernels(module):
        every = choices(module, VARIANTS)
        every = every[list(TRICKY).index(name) // 2 % 2 :][:1] if len(every) == 2 else every
        mixed = [types for types in every if len(set(types.values())) > 1]  # of several variables, each has each dtype in some of these
        for types in (mixed[:: max(1, len(mixed) - 1)] or every)[: 1 if name.startswith("nasty") else None]:
            block = 128 if name.startswith("table") else 1024  # an element a thread: a function's code is the same for each of eight
            build(module, kernel, types, "sm_90", "any" if "index" in TRICKY[name] else "rows", block=block)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [*(p.stem for p in SPECS), *TRICKY])
def test_everything_compiles_everywhere(name, target, tmp_path):
    path = next((p for p in SPECS if p.stem == name), None)
    module = spec_or_skip(path, tmp_path) if path else emit(TRICKY[name], tmp_path, name)
    for kernel in kernels(module):
        for types in choices(module, [k for k in POINTERS if "float" in k]):
            for kind, rank, wide in (("flat", 1, False), ("rows", 2, False), ("any", 4, True)):
                build(module, kernel, types, target, kind, rank, wide)
            if "ROWS" in kernel.arg_names:
                build(module, kernel, types, target, "along", 0, block=128, warps=2)


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float32"])
@pytest.mark.parametrize(("kind", "rank"), [("flat", 1), ("rows", 2)])
def test_full_blocks_use_16_byte_accesses(dtype, kind, rank, tmp_path):
    module = emit(TRICKY["affine"], tmp_path, "affine")
    ptx = build(module, module.affine_kernel, {"T": dtype}, "sm_90", kind, rank).asm["ptx"]
    full = 1 if dtype == "torch.bfloat16" else 2  # 1024 elements, 128 threads: 8 each
    assert len(re.findall(r"ld\.global[a-z0-9.:]*\.v4\.b32", ptx)) >= 2 * full
    assert len(re.findall(r"st\.global[a-z0-9.:]*\.v4\.b32", ptx)) >= full
    assert len(re.findall(r"\b(?:div|rem)\.[us]\d+", ptx)) <= 2 * full + 2 * 8  # one a vector in full blocks, one an element in the tail


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float32"])
def test_a_tile_of_rows_loads_what_they_share_once_by_16_bytes(dtype, tmp_path):
    module = emit(TRICKY["affine"], tmp_path, "affine")
    columns = 512 if dtype == "torch.bfloat16" else 256
    made = build(module, module.affine_kernel, {"T": dtype}, "sm_90", "rows", 0, block=columns, kinds=("rows", "along", "rows"), warps=2)
    whole, last = 4 + 1, 4 + 4  # 4 rows of 1,024 bytes, 64 threads; with a mask of rows there is one for each
    ptx = made.asm["ptx"]
    assert len(re.findall(r"ld\.global[a-z0-9.:]*\.v4\.b32", ptx)) == len(re.findall(r"ld\.global", ptx)) == whole + last


FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 710.0, 1e308, -1e308, 1e-320, math.inf, -math.inf, math.nan]
INTS = [0, 1, -1, 2, 7, -7, 63, 64, 2**62, -(2**63), 2**63 - 1]


@pytest.mark.parametrize(
    "op",
    [o for o in OPS.values() if o.rule not in ("logical", "bits", "shift", "stop", "where") and o.name not in ("digamma", "pos")],
    ids=lambda o: o.name,
)
def test_numbers_agree_with_the_host(op, tmp_path):
    kinds = [("float", FLOATS, FLOAT)] if op.rule != "words" else []
    kinds += [("int", INTS, INT)] if op.rule in ("arith", "same", "words") else []
    infix = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
             "gt": ">", "ge": ">="}  # fmt: skip
    for kind, values, number in kinds:
        args = ("a", "b", "c")[: op.arity]
        text = (
            f" {infix[op.name]} ".join(args) if op.name in infix else f"-{args[0]}" if op.name == "neg" else f"{op.name}({', '.join(args)})"
        )
        tested = op.rule in ("compare", "test")
        text = f"(1 if {text} else 0)" if tested else text
        spec = f"k(x: {'f64' if kind == 'float' else 'i64'}[N], {', '.join(f'{a}: {kind}' for a in args)}) -> y: {'f64' if kind == 'float' else 'i64'}[N]\ny = x * ({text})"
        module = emit(spec, tmp_path, f"{op.name}_{kind}")
        seen = {}
        module.launch = lambda kernel, dims, tensors, names, writes, numbers, sizes, constants=(), seen=seen: seen.update(value=numbers[0])
        import torch

        x = torch.zeros(3, dtype=torch.float64 if kind == "float" else torch.int64)
        for chosen in itertools.product(values, repeat=op.arity) if op.arity < 3 else itertools.product(values[::3], repeat=3):
            module.k(x, *chosen)
            want = host.evaluate(op.name, list(chosen), BOOL if tested else number)
            got = seen["value"]
            same = got == want or (got != got and want != want) or (math.isfinite(got) and math.isclose(got, want, rel_tol=1e-14))
            assert same, (op.name, chosen, got, want)
            if got == 0 and kind == "float" and not tested:
                assert math.copysign(1, got) == math.copysign(1, want) or op.name in ("max", "min", "clamp"), (op.name, chosen, got, want)


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")
def test_emitted_modules_are_clean(tmp_path):
    for name, text in TRICKY.items():
        (tmp_path / f"{name}.py").write_text(backend("triton").render(check(syntax.parse(text, f"{name}.k"))))
    for rules in (["--select", "E9,F,W,B,PLE", "--ignore", "B905"],):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--isolated", *rules, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("turn", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_every_derived_kernel_is_python(turn: int) -> None:
    """Derived kernels have shapes that nobody writes: workspaces that a map reads, phases that a rule emptied.  By default each third."""
    from kgen import grad
    from kgen.backends import backend
    from tests.grad_cases import kernel, texts

    for text in list(texts().values())[turn::3]:
        made = grad.backward(kernel(text))
        for k in {id(k): k for k in (made.forward, made.kernel)}.values():
            compile(backend("triton").render(k), k.name, "exec")


@pytest.mark.parametrize(("t", "u"), [("bf16", "bf16"), ("bf16", "f32"), ("f64", "bf16")])
def test_what_is_made_of_bf16_is_not_computed_in_f16(t, u):
    """LLVM makes the f16 of a product of two bf16, extended to f32, a product of two f16: -65536 is infinite there."""
    k = check(syntax.parse("f(x: T[], w: U[]) -> (y: f16[], z: f16[], q: f16[])\ny = w * x\nz = w + x\nq = w / x", "f.k"))
    found = toolchain._triton(k, {"T": DTYPES[t], "U": DTYPES[u]}, "sm_90", "ptx")
    assert found and not any(re.search(r"\b(mul|add|fma|div)\.(rn\.)?(b?f16)", str(text)) for _, text in found)


def test_what_triton_waits_for_is_begun_before_its_first_launch(monkeypatch) -> None:
    """Its libraries are hashed once; what fails there (here there may be no driver) is silent.  Without a GPU in use nothing begins."""
    import torch
    from triton.runtime import cache

    from kgen.runtime import launchers

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert launchers.warm_up_triton.__wrapped__() == ()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    cache.triton_key.cache_clear()
    threads = launchers.warm_up_triton.__wrapped__()
    for thread in threads:
        thread.join()
    assert len(threads) == 2 and cache.triton_key.cache_info().currsize == 1


def test_a_first_launch_needs_no_sympy() -> None:
    """torch.broadcast_shapes would import it."""
    code = (
        "import sys, torch, kgen\n"
        "from kgen.runtime.launchers import Triton\n"
        "module = Triton(kgen.load('rmsnorm').kernel).module\n"
        "assert module.check({'x': torch.ones(3, 2, 8), 'w': torch.ones(8)})[0] == {'...': (3, 2), 'N': 8}\n"
        "print(sorted({'sympy', 'mpmath', 'torch.fx.experimental.symbolic_shapes'} & set(sys.modules)))"
    )
    done = warm.run("-c", code)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("a", "b"), [((), (3,)), ((3,), ()), ((2, 3), (3,)), ((1, 3), (2, 1)), ((0, 1), (1, 5)), ((1,), (0,)), ((2,), (3,)), ((2, 0), (2, 3))]
)
def test_leading_dims_broadcast_as_torchs(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    import torch

    from kgen.runtime.launchers import Triton

    kernel = check(syntax.parse("f(x: f32[..., N], y: f32[..., N]) -> z: f32[..., N]\n\nz = x + y\n"))
    given = {"x": torch.ones(*a, 2), "y": torch.ones(*b, 2)}
    try:
        want = tuple(torch.broadcast_shapes(a, b))
    except RuntimeError:
        with pytest.raises(ValueError, match="do not broadcast"):
            Triton(kernel).module.check(given)
        return
    assert Triton(kernel).module.check(given)[0]["..."] == want


def test_the_greatest_of_no_elements_is_refused(tmp_path: Path) -> None:
    """As eager torch and kgen's own calls refuse it."""
    import torch

    text = "f(x: T[..., N], w: T[V]) -> (s: T[...], z: T[M]) where M = V + 3\n\ns = max[N](x)\nz = w[V = clamp(index[M], 0, V - 1)]\n"
    module = emit(text, tmp_path, "f")
    with pytest.raises(ValueError, match=r"max\[N\] of no elements: dim N has size 0"):
        module.f(torch.empty(3, 0), torch.ones(2))
    with pytest.raises(ValueError, match="a place along V, which has size 0"):
        module.f(torch.empty(0, 2), torch.empty(0))
