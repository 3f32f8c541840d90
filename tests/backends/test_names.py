"""Names cannot capture: kernels whose parameters, numbers, equations, results, dims and own names are the generator's names compile.

The names come from all that kgen writes: its templates, their functions, the reviewed sources.  A kernel takes some fifty at a time.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

import kgen
from kgen.backends import TARGETS, backend
from kgen.backends.names import CLOSE, OPEN
from kgen.check import Kernel
from kgen.ops import CONSTANTS, OPS, REDUCTIONS
from kgen.runtime import arguments, driver, nvrtc
from kgen.testing import textual
from kgen.types import DTYPES
from tests.conftest import ROOT

torch = pytest.importorskip("torch", reason="torch is not installed")

LANGUAGE = {*OPS, *REDUCTIONS, *DTYPES, *CONSTANTS, "float", "int", "index", "size", "pick", "if", "else", "and", "or", "not", "pos", "true",
            "false", "stop"}  # fmt: skip
PRELUDE = set(re.findall(r"^(\w+)(?:\[\w+\])?\(", (ROOT / "kgen" / "prelude.k").read_text(), flags=re.M))
EACH, LOCALS, NUMBERS = 10, 8, 6  # sums, equations of elements and numbers of a kernel


@cache
def pool() -> tuple[str, ...]:
    """Every name in what kgen writes that a spec may use; of what the printers make, first what captured before."""
    texts = [p.read_text() for p in (ROOT / "templates").rglob("*") if p.is_file()]
    texts += [p.read_text() for p in (ROOT / "tests" / "golden").rglob("*.*") if p.suffix in (".cu", ".cpp", ".py")]
    found = {name for text in texts for name in re.findall(r"(?<![\w.])[A-Za-z]\w*", text)}
    found |= {"top", "more", "part", "other", "rise", "meet", "gather", "add", "follow", "few", "walk", "first_part", "place", "rows"}
    found = {n for n in found if len(n) <= 40 and n not in LANGUAGE | PRELUDE and not re.fullmatch(r"[A-Z](32)?", n)}
    return tuple(sorted(found))


@cache
def words() -> tuple[str, ...]:
    """What the targets' languages, their macros and headers call so, where a spec may too."""
    c = """alignas and_eq asm auto bitand bool break case catch char const constexpr const_cast continue co_await decltype default delete do double
        enum explicit extern for friend goto inline long mutable namespace new noexcept nullptr operator or_eq private public register requires
        return short signed sizeof static struct switch template this throw try typedef typename union unsigned using virtual void volatile
        while xor std size_t int64_t errno NAN INFINITY assert main printf malloc signal y0 j1 gamma linux unix threadIdx blockIdx blockDim gridDim
        warpSize dim3 float4 half clock atomicAdd cudaStream_t cudaError_t cub cuda rsqrtf fmaxf cooperative_groups"""
    triton = "triton tl np self cls program_id load store dot jit reduce cdiv libdevice torch out grid num_warps warmup stream kgen"
    found = dict.fromkeys([*c.split(), *keyword.kwlist, *keyword.softkwlist, *dir(builtins), *triton.split()])
    return tuple(n for n in found if n[0] != "_" and n not in LANGUAGE | PRELUDE)


def rows(names: list[str]) -> str:
    """A kernel of every kind of phase: sums about a maximum, a place, a gather, sums of those, elements stored."""
    take = iter(names).__next__
    kernel, x, w, t, dim = take(), take(), take(), take(), take().capitalize()
    numbers, elements, sums = [[take() for _ in range(n)] for n in (NUMBERS, LOCALS, EACH)]
    top, e, off, at, picked, y, row, found = (take() for _ in range(8))
    params = [f"{x}: T[..., {dim}]", f"{w}: T[{dim}]", f"{t}: i64[...]", *(f"{n}: float" for n in numbers)]
    lines = [f"{top} = max[{dim}]({x})", f"{e} = sum[{dim}](exp({x} - {top}))", f"{off} = sum[{dim}]({x} - {top})"]
    lines += [f"{at} = argmax[{dim}]({x})", f"{picked} = pick[{dim}]({w}, {t})"]
    lines += [f"{n} = {x} * {numbers[k % NUMBERS]} + {w}" for k, n in enumerate(elements)]
    lines += [f"{n} = sum[{dim}]({elements[k % LOCALS]} * {e if k % 2 else 3})" for k, n in enumerate(sums)]
    lines += [f"{row} = {' + '.join([*sums, off, picked])}", f"{found} = {at} + 1"]
    lines += [f"{y} = {' + '.join(elements)} / {e}"]
    return f"{kernel}({', '.join(params)}) -> ({y}: T[..., {dim}], {row}: T[...], {found}: i64[...])\n\n" + "\n".join(lines)


def maps(names: list[str]) -> str:
    """Two passes over elements, with a state, a position and numbers of the host."""
    take = iter(names).__next__
    kernel, x, s, n, dim = take(), take(), take(), take(), take().capitalize()
    numbers, elements, results = [[take() for _ in range(k)] for k in (NUMBERS, 2 * LOCALS, EACH)]
    params = [f"{x}: T[..., {dim}]", f"{s}: f32[..., {dim}]", f"{n}: int", *(f"{k}: float" for k in numbers)]
    lines = [f"{e} = {x} * ({numbers[k % NUMBERS]} * 2 + 1) + {s} + relu({x})" for k, e in enumerate(elements)]
    lines += [f"{r} = {elements[k % len(elements)]} + {elements[-1 - k % LOCALS]} * index[{dim}]" for k, r in enumerate(results)]
    lines += [f"{s}' = {s} * {n} + {' + '.join(elements)}"]
    heads = [f"{r}: {'T' if k % 2 else 'f32'}[..., {dim}]" for k, r in enumerate(results)]
    return f"{kernel}({', '.join(params)}) -> ({', '.join([*heads, f'{s}{chr(39)}: f32[..., {dim}]'])})\n\n" + "\n".join(lines)


@cache
def texts() -> tuple[str, ...]:
    """Kernels that together have every name of the pool, each of both kinds."""
    names, made = [*pool(), *(n for n in words() if n not in pool())], []
    for write, each in ((rows, 5 + NUMBERS + LOCALS + EACH + 8), (maps, 5 + NUMBERS + 2 * LOCALS + EACH)):
        fill = iter(f"v{k}" for k in range(10_000))
        for k in range(0, len(names), each):
            own = list(dict.fromkeys(names[k : k + each]))
            own += [next(fill) for _ in range(each - len(own))]
            dim = own[4].capitalize()  # a dim's name begins with a capital: it may be another name's, or none
            if dim in own or not dim[0].isupper() or dim in LANGUAGE | PRELUDE or re.fullmatch(r"[A-Z](32)?", dim):
                own[4] = f"q{k}"
            made.append(write(own))
    return tuple(made)


#: The names of the sums about a maximum, and everything else that captured.
CAPTURED = rows(["add_", "x", "w", "t", "n", *"abcdef", "joined", "rides", "follow", "team", "all", "load", "k", "v", "top", "more", "other", "part",
                 "few", "whole", "words", "at", "rise", "meet", "gather", "add", "top_part", "count", "first", "second_", "lane", "y"])  # fmt: skip
WORDS = rows(["class", "lambda", "threadIdx", "static", "template", "blockIdx", "return", "std", "tl", "def", "int64_t", "char", "new", "operator", "this",
              "auto", "void", "for", "unix", "errno", "NAN", "None", "triton", "torch", "program_id", "is", "in", "yield", "await", "namespace", "typename",
              "half", "assert", "y0", "main", "delete", "libdevice", "range", "print", "out"])  # fmt: skip
QUICK = [CAPTURED, WORDS, *texts()[20::90]]


def call(kernel: Kernel, shape: tuple[int, ...] = (3, 40)) -> arguments.Call:
    given = []
    for p in kernel.params:
        if not p.is_tensor:
            given.append(1 if p.dtype == "int" else 0.5)
        elif "..." in (p.dims or ()):
            size = shape if len(p.dims or ()) > 1 else shape[:1]
            given.append(torch.zeros(size, dtype=torch.int64 if p.dtype == "i64" else torch.float32))
        else:
            given.append(torch.zeros(shape[1:]))
    return arguments.bind(kernel, tuple(given), {}, None)


def cuda(text: str) -> None:
    """As a call would have it compiled, to PTX."""
    kernel = kgen.loads(text).kernel
    source = backend("cuda").render(kernel)
    assert not {OPEN, CLOSE} & set(source)
    names = nvrtc.expressions(kernel, call(kernel), "sm_90")
    driver.compile_cubin(source, names, "compute_90", nvrtc.OPTIONS)


def cpp(text: str, folder: Path) -> None:
    source = backend("cpp").render(kgen.loads(text).kernel, {"T": "f32"})
    assert not {OPEN, CLOSE} & set(source)
    (folder / "names.cpp").write_text(source)
    done = subprocess.run(["g++", "-std=c++17", "-fsyntax-only", "-fopenmp", str(folder / "names.cpp")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]


def triton(text: str) -> None:
    """Each function's names are its parameters, its own, or the module's; none stands for two things."""
    source = backend("triton").render(kgen.loads(text).kernel)
    assert not {OPEN, CLOSE} & set(source)
    module = ast.parse(source)
    for function in (n for n in ast.walk(module) if isinstance(n, ast.FunctionDef)):
        params = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
        assert len(set(params)) == len(params), function.name
    compile(source, "names.py", "exec")


@pytest.mark.skipif(driver.nvrtc_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("text", QUICK, ids=range(len(QUICK)))
def test_names_of_the_generator_compile_in_cuda(text: str) -> None:
    cuda(text)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("text", QUICK, ids=range(len(QUICK)))
def test_names_of_the_generator_compile_in_cpp(text: str, tmp_path: Path) -> None:
    cpp(text, tmp_path)


def test_names_of_the_generator_stand_for_one_thing_in_triton() -> None:
    for text in QUICK:
        triton(text)


@pytest.mark.parametrize("name", ["again", "tiles", "vectors", "walk", "triton", "codes"])
def test_a_kernel_has_another_name_than_what_its_module_defines(name: str) -> None:
    """Names of the module are read off its templates, so that no list has them."""
    kernel = kgen.loads(f"{name}(x: T[..., N], q: f8e4m3[..., N]) -> (y: T[..., N], s: T[...])\n\ny = x * q\ns = sum[N](x)").kernel
    module = ast.parse(backend("triton").render(kernel))
    defined = [n.name for n in module.body if isinstance(n, ast.FunctionDef)]
    defined += [t.id for n in module.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)]
    defined += [(n.asname or n.name).partition(".")[0] for i in module.body if isinstance(i, (ast.Import, ast.ImportFrom)) for n in i.names]
    defined = [n for n in defined if n != "triton"]  # which is imported twice
    assert len(defined) == len({*defined}) and f"{name}_" in defined


SPECS = sorted((ROOT / "specs").rglob("*.k"))


def alike(specs: list[Path]) -> None:
    """Hold every target's source of specs to be the same under names of 4 letters and of 40."""
    for path in specs:
        kernel = kgen.load(path).kernel
        short, long = textual.renamed(kernel, "vN")[0], textual.renamed(kernel, "uM", length=textual.LONG)[0]
        for target in TARGETS:
            said = textual.renamed_tokens(*(textual.tokens(backend(target).render(k), target) for k in (short, long)))
            assert not said, f"{path} {target}: {said}"


def test_names_of_any_length_leave_a_source_as_it_is() -> None:
    alike(SPECS[::53])


@pytest.mark.slow
def test_names_of_any_length_leave_every_source_as_it_is() -> None:
    alike(SPECS)


@pytest.mark.parametrize("target", ["cuda", "triton"])
@pytest.mark.parametrize("factor", ["b", "(tanh(b * a + 1.5) / (b + 0.98765)) * (tanh(a * a - 2.5) / (b * b + 0.12345))"])
def test_a_product_is_rounded_with_its_sum_however_long_it_is(target: str, factor: str) -> None:
    source = backend(target).render(kgen.loads(f"f(a: T[...], b: T[...], c: T[...]) -> y: T[...]\n\ny = a * ({factor}) + c\n").kernel)
    assert re.search(r"fused(<T>)?\(.*, c(, T)?\)", source), source


@pytest.mark.slow
@pytest.mark.skipif(driver.nvrtc_path() is None or shutil.which("g++") is None, reason="NVRTC or g++ is not installed")
def test_every_name_of_the_generator_compiles(tmp_path: Path) -> None:
    for text in texts():
        cuda(text)
        cpp(text, tmp_path)
        triton(text)


@pytest.mark.slow
@pytest.mark.parametrize("text", [CAPTURED, *texts()[::12]], ids=range(1 + len(texts()[::12])))
def test_names_of_the_generator_compile_in_triton(text: str) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from kgen.runtime.toolchain import listing

    kernel = kgen.loads(text).kernel
    assert ".entry" in listing(kernel, backend("triton").render(kernel), "ptx", "triton", kernel.bindings()[0], "sm_90")
