"""What a spec holds never becomes more than names, numbers and comments in what kgen writes, and never more than text on a terminal."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import kgen
from kgen.cli import main
from kgen.errors import KgenError
from kgen.mathematics import latex
from tests.attack import hostile
from tests.attack.hostile import COMMENTS, TARGETS, Case, hold, judged_by_python, tokens, well_printed

PLAIN = "f(x: T[...]) -> y: T[...]\n\ny = x * 2\n"
SPECIAL = [c for c in COMMENTS if "\n" not in c]


def test_hostile_specs_put_no_token_into_the_sources(request: pytest.FixtureRequest) -> None:
    """Thirty cases for one target each, `--fuzz` makes it 100,000; `python -m tests.attack.hostile` runs them in several processes."""
    count = 100_000 if request.config.getoption("--fuzz") else 30
    _, taken, failed = hostile.run(0, count)
    assert not failed, "\n".join(f"case {seed}: {why}" for seed, why in failed[:20])
    assert taken > count // 2


def test_every_hostile_name_for_every_kind_of_name() -> None:
    """All of them are in use: as a kernel's, a parameter's, a dim's."""
    values, dims = hostile.names()
    assert len(values) > 1000 and len(dims) > 300
    found = Case(1).pairs
    assert len(found) == len({bad for _, bad in found}) == len({good for good, _ in found})


@pytest.mark.parametrize("target", TARGETS)
def test_a_comment_is_a_comment(target: str) -> None:
    """Every hostile comment above the header, behind it and at the ends of lines, one file with all of them."""
    plain = kgen.loads(PLAIN, "t.k").source(target)
    for k in range(0, len(SPECIAL), 3):
        text = "".join(f"#{c}\n" for c in SPECIAL[k : k + 3]) + PLAIN.replace("2\n", f"2 # {SPECIAL[k]}\n# {SPECIAL[k]}")
        made = kgen.loads(text, SPECIAL[k][:100] + ".k").source(target)
        well_printed(made)
        assert tokens(made, target) == tokens(plain, target), SPECIAL[k : k + 3]
        if target == "triton":
            judged_by_python(made)
            compile(made.encode(), "f.py", "exec")


@pytest.mark.parametrize(
    "first", ["# coding: utf-7", "#!/bin/sh\n# vim: set fileencoding=unicode_escape :", "# -*- coding: rot13 -*-", "#coding=undefined"]
)
def test_no_comment_chooses_how_python_reads_the_source(first: str) -> None:
    made = kgen.loads(f"{first}\n# \\u000aimport os +AAo-import os\n{PLAIN}").source("triton")
    judged_by_python(made)
    assert "import os" not in [line.strip() for line in made.split("\n")]


def test_a_parameter_may_be_called_coding() -> None:
    judged_by_python(kgen.loads("f(coding: T[...]) -> y: T[...]\n\ny = coding\n").source("triton"))


def _calls(text: str) -> str:
    source = kgen.loads(text).source("triton")
    judged_by_python(source)
    return source


@pytest.mark.parametrize("text, taken", [
    ("f(a: T[M, N], x: float) -> y: T[N]\n\nm = mean[N](a)\ny = sum[M](a - m) * x\n", r"for \w+, x in tensors\.items\(\):\n\s+if other != name and min"),
    ("f(a: T[N], start: float) -> y: T[]\n\ny = sum[N](a) * start\n", r"\* start\b"),
    ("f(a: T[...], MASK: float) -> y: T[...]\n\ny = a * MASK\n", r"\(a_ptr, y_ptr, mask, first"),
    ("f(a: T[N], programs: float) -> y: T[]\n\ny = sum[N](a * programs)\n", r"\* programs\b"),
])  # fmt: skip
def test_a_name_of_the_template_does_not_take_a_numbers_place(text: str, taken: str) -> None:
    """The host's part and the loops of a pass over rows used names that a parameter may have, and changed the parameter."""
    lines = "\n".join(line for line in _calls(text).split("\n") if not line.lstrip().startswith("#"))
    assert not re.search(taken, lines)


CAPTURED = {
    "cpp": [
        "f(r: T[..., N], t: i64[...]) -> y: T[...]\n\ny = pick[N](r, t)\n",
        "f(a: T[...], leading: T[...], d: float) -> y: T32[]\n\ny = mean[...](a - leading * d)\n",
        "size_t(ptrdiff_t: T[..., N], int64_t: T[N]) -> y: T[...]\n\ny = sum[N](ptrdiff_t * int64_t)\n",
    ],
    "cuda": [
        "f(size_t: T[..., Step0]) -> y: T[..., Step0]\n\ny = size_t / sum[Step0](size_t * Step0)\n",
        "f(a: T[...], leading: T[...], d: float) -> y: T32[]\n\ny = mean[...](a - leading * d)\n",
    ],
}


@pytest.mark.parametrize("text", CAPTURED["cpp"])
def test_names_that_were_captured_in_cpp(text: str) -> None:
    _compiled(kgen.loads(text).source("cpp"), "cpp")


def _compiled(source: str, target: str) -> None:
    """Has a compiler look at a source, without making code."""
    from kgen.runtime import build
    from kgen.runtime.toolchain import NVCC

    if target == "cpp":
        command = [build.compiler(), "-std=c++17", "-fsyntax-only", "-Wno-multichar", "-x", "c++", "-"]
        done = subprocess.run(command, input=source, capture_output=True, text=True)
    else:
        done = subprocess.run(
            ["nvcc", *NVCC, "-arch=sm_90", "-x", "cu", "-", "-cuda", "-o", "/dev/null"], input=source, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.slow
def test_hostile_sources_compile() -> None:
    """C++ takes what it is given, names of its own headers among them, for 200 cases."""
    for seed in range(200):
        case = Case(seed)
        if not case.wild:
            _compiled(kgen.loads(case.hostile, case.name).source("cpp"), "cpp")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_hostile_cuda_sources_compile(number: int) -> None:
    import shutil

    if shutil.which("nvcc") is None:
        pytest.skip("there is no nvcc")
    text = CAPTURED["cuda"][number] if number < len(CAPTURED["cuda"]) else Case(1000 + number).hostile
    try:
        source = kgen.loads(text, "t.k").source("cuda")
    except KgenError:
        return
    _compiled(source, "cuda")


# ------------------------------------------------------------------------------------------------ terminals, files


def printed_alone(text: str) -> None:
    """No control character but line ends and tabs."""
    assert not [
        c for c in text if c not in "\t\n" and not c.isprintable() and not c.isspace() or c in "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
    ], repr(text)


@pytest.mark.parametrize("text", [
    "f(x: T[...]) -> y: T[...]\n\ny = x + \x1b[31mred\n", "f(x: T[...]) -> y: T[...]\n\ny = x + z # \x1b]0;title\x07 \u202e\n", "\x00", "\x9b31m", "f(\u202ex: T[...]) -> y: T[...]\ny = x",
    "f(x: T[...]) -> y: T[...]\ny = 'a\rb'", "f(x: T[...]\x7f) -> y: T[...]\ny = x", "f(x: T[...]) -> y: T[...]\ny = x \ud800", "f(x: T[...]) -> y: T[...]\ny = x" + "\\" * 3, '"""', "{{ x }}", "#include <x>\n__asm__(\"nop\");",
])  # fmt: skip
@pytest.mark.parametrize("name", ["t.k", "\x1b[2J.k", "a\nerror: nothing is wrong\n.k", "\u202ek.t", "\udcff.k"])
def test_errors_show_control_characters_escaped(text: str, name: str) -> None:
    with pytest.raises(KgenError) as caught:
        kgen.loads(text, name)
    printed_alone(str(caught.value))
    assert sum(line.startswith("error:") for line in caught.value.render().split("\n")) == len(caught.value.diagnostics)


@pytest.mark.parametrize(
    "name", ["\x1b[2J.k", "a\nb.k", "\u202ek.t", "-o", "x" * 300, "a\x00b", "../../etc/passwd", "/dev/zero", "/proc/self/mem", "."]
)
@pytest.mark.parametrize("command", ["compile", "show", "fmt"])
def test_what_is_no_spec_is_said_in_printable_words(name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    done = CliRunner().invoke(main, [command, "--", name])
    assert done.exit_code in (1, 2) and (done.exception is None or isinstance(done.exception, SystemExit)), done.exception
    printed_alone(done.output)
    assert time.monotonic() - start < 5 and list(tmp_path.iterdir()) == []


HOSTILE_FILE = "# \x1b[31m \r import os \u202e */ \\\n# coding: utf-7 {{ x }} $(id)\n" + PLAIN


@pytest.mark.parametrize("name", ["a\nb.k", "'; rm -rf x; '.k", '"""\n.k', "$(id).k", "\x1b[31m.k", "-rf.k", "%s{0}.k", "漢字.k", "a\rb.k"])
def test_a_file_of_any_name_compiles_into_a_folder_of_the_kernels_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(HOSTILE_FILE.replace("\r", ""))
    done = CliRunner().invoke(main, ["compile", "--", name])
    assert done.exit_code == 0, done.output
    printed_alone(done.output)
    assert {p.name for p in tmp_path.iterdir()} == {name, "build"} and {p.name for p in (tmp_path / "build").iterdir()} == {"f"}
    assert {p.name for p in (tmp_path / "build" / "f").iterdir() if p.suffix != ".cuh"} == {"f_triton.py", "f.cu", "f.cpp"}
    for path in (tmp_path / "build" / "f").iterdir():
        well_printed(path.read_text(encoding="utf-8"))
    judged_by_python((tmp_path / "build" / "f" / "f_triton.py").read_text(encoding="utf-8"))


@pytest.mark.parametrize("stage", ["spec", "syntax", "program", "math", "schedule", "source"])
def test_stages_print_text(stage: str) -> None:
    kernel = kgen.loads(HOSTILE_FILE, "\x1b[31m\n.k")
    printed_alone(kernel.show(stage))
    printed_alone(kernel.show(stage, backward=True))
    printed_alone(f"{kernel.doc} {kernel.__doc__} {kernel!r} {kernel.signature} {kernel.to_spec()}")


def test_a_specs_text_is_read_back_as_the_same_statements() -> None:
    """Line ends of other kinds in a comment would be line ends to whoever reads the file."""
    kernel = kgen.loads("# a\rg(z) = z\r\x0bq\n" + PLAIN)
    again = io.TextIOWrapper(io.BytesIO(kernel.to_spec().encode()), encoding="utf-8").read()
    assert kgen.loads(again).source("cpp") == kernel.source("cpp")
    assert again.splitlines() == again.split("\n")[:-1]


def test_names_are_names_in_latex_and_mathematics() -> None:
    """A name stands as it is: no command, no bracket."""
    for name in ("input", "def", "write18", "_", "x__y", "lambda_", "N_a_b", "alphabar", "xhat", "E", "I", "oo", "zoo", "S", "Q"):
        if len(name) > 1 or name == "_":
            made = latex(kgen.loads(f"f({name}: T[...]) -> y: T[...]\n\ny = {name} * 2\n").kernel.file)
            commands = set(re.findall(r"\\([A-Za-z]+)", made))
            assert commands <= {"begin", "end", "mathrm", "cdot"}, (name, made)
            assert made.count("{") == made.count("}")


# ------------------------------------------------------------------------------------------------ bombs


BOMBS = {
    "powers": "f(x: T[N]) -> y: T[N]\n\ny = x * 9^9^9^9^9\n",
    "shifts": "f(x: T[N]) -> y: T[N]\n\ny = x * (1 << 1 << 62 << 62 << 9223372036854775807)\n",
    "exponents": "f(x: T[N]) -> y: T[N]\n\ny = x * 1e400 * 1e-400 * 1e0000000000000000399\n",
    "doubling helpers": "".join(f"h{k + 1}(a) = h{k}(a) + h{k}(a)\n" for k in range(60))
    + "h0(a) = a\nf(x: T[N]) -> y: T[N]\n\ny = h60(x)\n",
    "doubling equations": "f(x: T[N]) -> y: T[N]\n\nt0 = x\n" + "".join(f"t{k + 1} = t{k} * t{k}\n" for k in range(300)) + "y = t300\n",
    "brackets": "f(x: T[N]) -> y: T[N]\n\ny = " + "(" * 30_000 + "x" + ")" * 30_000 + "\n",
    "signs": "f(x: T[N]) -> y: T[N]\n\ny = " + "-" * 60_000 + "x\n",
    "nots": "f(x: bool[N]) -> y: bool[N]\n\ny = " + "not " * 15_000 + "x\n",
    "conditions": "f(x: T[N]) -> y: T[N]\n\ny = " + "x if x > 0 else " * 3_000 + "x\n",
    "a tower": "f(x: T[N]) -> y: T[N]\n\ny = " + "x^" * 19_000 + "2\n",
    "dims": "f(" + ", ".join(f"x{k}: T[{', '.join(f'D{j}' for j in range(64))}]" for k in range(150)) + ") -> y: T[]\n\ny = 1\n",
    "parameters": "f(" + ", ".join(f"x{k}: T[N]" for k in range(4_000)) + ") -> y: T[N]\n\ny = x0\n",
    "results": "f(x: T[N]) -> (" + ", ".join(f"y{k}: T[N]" for k in range(3_000)) + ")\n\ny0 = x\n",
    "errors": "f(x: T[N]) -> y: T[N]\n\n" + "y = z\n" * 9_000,
    "comments": "#" * 60_000 + "\n" + PLAIN,
    "many comments": "#\n" * 30_000 + PLAIN,
    "blank lines": "\n" * 60_000 + PLAIN,
    "spaces": " " * 60_000 + PLAIN,
    "one name": "f" * 60_000,
    "digits": "9" * 60_000,
    "reductions": "f(x: T[N]) -> y: T[]\n\ny = " + "sum[N](x * " * 190 + "x" + ")" * 190 + "\n",
    "too long": "#" * 70_000,
    "mutual helpers": "g(a) = h(a)\nh(a) = g(a)\n" + PLAIN.replace("x * 2", "g(x)"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_answered_in_a_second(bomb: str) -> None:
    start = time.process_time()
    try:
        kernel = kgen.loads(BOMBS[bomb])
    except KgenError as error:
        printed_alone(str(error))
        assert len(str(error)) < 200_000
        assert time.process_time() - start < 1.5
        return
    assert time.process_time() - start < 1.5
    kernel.program()
    assert time.process_time() - start < 3


def test_the_front_end_reads_and_starts_nothing(tmp_path: Path) -> None:
    """Parsing, checking, printing and rendering a hostile spec opens no file but kgen's own, reads no network and starts no process."""
    code = f"""
import sys
import kgen
from kgen import backends
kgen.loads("f(x: T[...]) -> y: T[...]\\n\\ny = gelu(x)\\n").show("math")
for target in ("triton", "cuda", "cpp"):
    kgen.loads("f(x: T[..., N]) -> y: T[...]\\n\\ny = sum[N](gelu(x))\\n").source(target)
seen = []
def hook(event, args):
    if event in ("open", "exec", "compile", "import", "os.system", "subprocess.Popen", "socket.connect", "os.exec", "os.putenv", "ctypes.dlopen"):
        seen.append((event, str(args[0])))
sys.addaudithook(hook)
from pathlib import Path
for path in sys.argv[1:]:
    kernel = kgen.loads(Path(path).read_bytes().decode(errors="surrogateescape"), path)
    for target in ("triton", "cuda", "cpp"):
        kernel.source(target)
    for stage in ("spec", "syntax", "program", "schedule"):
        kernel.show(stage)
allowed = (sys.prefix, sys.base_prefix, {str(Path(kgen.__file__).parents[1])!r}, {str(tmp_path)!r})
print([s for s in seen if not (s[0] in ("open", "import") and (s[0] == "import" or s[1].startswith(allowed))) and s[0] != "compile" and s[0] != "exec"])
"""
    (tmp_path / "t.k").write_text(HOSTILE_FILE + "# {{ ''.__class__ }} {% include '/etc/passwd' %}\n")
    env = {**os.environ, "PYTHONPATH": str(hostile.ROOT)}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "t.k")], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_a_case_holds_for_every_target() -> None:
    for seed in (2, 3):
        hold(Case(seed), TARGETS)
