"""The command line: what it writes, where, its exit codes, and what it does not load."""

from __future__ import annotations

import json
import os
import re
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kgen import __version__
from kgen.cli import main
from kgen.resources import families
from tests.conftest import ROOT

GELU = str(ROOT / "specs" / "gelu.k")
BAD = "f(x: T[...]) -> y: T[...]\ny = x +\nz = q\n"


def kgen(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=input)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_two_specs_of_one_name_are_not_written_over_one_another() -> None:
    """The first one's files stay; the same spec may be named twice, and other specs share the library's files."""
    for folder, by in (("a", 1), ("b", 2)):
        Path(folder).mkdir()
        Path(folder, "f.k").write_text(f"f(x: T[N]) -> y: T[N]\n\ny = x + {by}\n")
    done = kgen("compile", "a/f.k", "b/f.k", "--target", "cpp", "-o", "out")
    assert done.exit_code == 1 and "out/f/f.cpp has the kernel of a/f.k, and that of b/f.k is named so too" in done.output, done.output
    assert "y = x + 1" in Path("out/f/f.cpp").read_text() and done.output.count("out/f/f.cpp") == 2
    done = kgen("compile", "a/f.k", "./a/f.k", GELU, "silu", "--target", "cuda", "-o", "other")
    assert done.exit_code == 0, done.output


def test_compile_writes_three_files_and_a_table() -> None:
    done = kgen("compile", GELU)
    assert done.exit_code == 0, done.output
    for name in ("gelu_triton.py", "gelu.cu", "gelu.cpp"):
        assert Path("build/gelu", name).read_text().startswith(("#", "//")), name
        assert f"build/gelu/{name}" in done.stdout
    assert "2 to 8 B" in done.stdout


@pytest.mark.parametrize("folder", [False, True])
def test_a_bare_name_finds_the_bundled_spec(folder: bool) -> None:
    if folder:  # one that is called so is no spec
        Path("gelu").mkdir()
    assert kgen("compile", "gelu", "--target", "cpp", "-o", "here").exit_code == 0
    assert Path("here/gelu/gelu.cpp").exists()


def test_what_is_built_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from kgen.runtime import toolchain

    monkeypatch.setattr(toolchain, "build_file", lambda target, path, kernel, arch: [path.with_suffix(".so")])
    done = kgen("compile", GELU, "--target", "cpp", "--build")
    assert done.exit_code == 0 and done.stderr == "built build/gelu/gelu.so\n"


def test_a_bare_name_that_is_none_says_which_is_like_it() -> None:
    assert "did you mean `gelu`?" in kgen("compile", "gelup").stderr
    assert "`kgen list` has them" in kgen("compile", "nothing_like_it").stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_output_that_finds_no_room_is_an_error_and_no_traceback() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", "from kgen.cli import main; main()", "list"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr == "error: cannot write the output: no space left on device\n"


def test_dash_writes_the_source_and_nothing_else() -> None:
    done = kgen("compile", GELU, "--target", "cuda", "-o", "-")
    assert done.exit_code == 0
    assert done.stdout.startswith("// ") and done.stdout.endswith("\n") and not done.stderr
    assert kgen("compile", GELU, "-o", "-").exit_code == 2


@pytest.mark.parametrize("target", ["triton", "cuda", "cpp"])
def test_dash_writes_the_file_that_a_folder_gets(target: str) -> None:
    """Of a dim taken apart too, where a file's host part takes whole tensors or their parts."""
    assert kgen("compile", "rope", "--target", target, "--standalone", "-o", "here").exit_code == 0
    (path,) = (found for found in Path("here").rglob("*") if found.is_file())
    assert kgen("compile", "rope", "--target", target, "-o", "-").stdout == path.read_text()


def test_every_wrong_spec_is_reported_and_the_right_ones_are_written() -> None:
    Path("bad.k").write_text(BAD)
    done = kgen("compile", "bad.k", GELU, "nowhere.k", "--target", "cpp")
    assert done.exit_code == 1
    assert "bad.k:2" in done.stderr and "cannot read nowhere.k: no such file or directory" in done.stderr
    assert "build/gelu/gelu.cpp" in done.stdout


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Path("s.k").write_bytes(b"\xff\xfe"), "is not UTF-8"),
        (lambda: Path("s.k").write_text("#" * 70_000), "is longer than 65,536 bytes"),
        (lambda: Path("s.k").mkdir(), "is a folder"),
        (lambda: None, "no such file"),
        (lambda: Path("s.k").write_text(""), "there is no kernel here"),
        (lambda: Path("s.py").write_text("import kgen\n"), "s.py is Python, and no spec"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(make, message: str) -> None:
    make()
    done = kgen("compile", "s.py" if Path("s.py").exists() else "s.k")
    assert done.exit_code == 1 and message in done.stderr and not done.stdout


@pytest.mark.parametrize("where", ["taken", "taken/deeper", "/proc/kgen"])
def test_a_folder_that_cannot_be_written_says_so(where: str) -> None:
    Path("taken").write_text("a file")
    done = kgen("compile", GELU, "-o", where)
    assert done.exit_code == 1 and "cannot write" in done.stderr and "choose another folder" in done.stderr


def test_a_kernels_name_cannot_lead_outside_the_folder() -> None:
    for name in ("../escape", "a/b", "..", "/etc/x"):
        Path("s.k").write_text(f"{name}(x: T[...]) -> y: T[...]\ny = x\n")
        assert kgen("compile", "s.k", "-o", "inside").exit_code == 1
    assert not Path("inside").exists()


def test_files_have_the_users_usual_mode() -> None:
    kgen("compile", GELU, "--target", "cpp")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(Path("build/gelu/gelu.cpp").stat().st_mode) == 0o666 & ~mask


def test_show_has_every_stage() -> None:
    for stage, mark in (("syntax", "header gelu"), ("program", "store y"), ("math", "erfc"), ("schedule", "pass 0"), ("source", "gelu")):
        done = kgen("show", GELU, "--stage", stage)
        assert done.exit_code == 0 and mark in done.stdout, stage
    assert "where T = bf16" in kgen("show", GELU, "--dtype", "T=bf16").stdout
    assert kgen("show", GELU, "--dtype", "T=i8").exit_code == 1
    asm = kgen("show", GELU, "--stage", "asm", "--target", "cpp")
    assert asm.exit_code == 0 and "gelu_f32" in asm.stdout


def test_the_backward_is_compiled_shown_and_checked() -> None:
    done = kgen("compile", "softmax", "gelu", "--backward", "--target", "cuda")
    assert done.exit_code == 0, done.output
    names = {path.name for path in Path("build").rglob("*.cu")}
    assert names == {"softmax.cu", "softmax_forward.cu", "softmax_backward.cu", "gelu.cu", "gelu_backward.cu"}
    source = kgen("compile", "softmax", "--backward", "--target", "triton", "-o", "-").output
    assert "def softmax_backward(" in source and not Path("build/softmax/softmax_triton.py").exists()
    for stage in ("spec", "syntax", "program", "math", "schedule", "source"):
        shown = kgen("show", "softmax", "--backward", "--stage", stage)
        assert shown.exit_code == 0 and ("max_N" in shown.output), stage
    chosen = kgen("show", "softmax", "--backward", "--stage", "schedule").output
    assert "It reads x, and max_N and sum_N, which the forward saves." in chosen and "a row is read twice" in chosen
    checked = kgen("check", "softmax", "--backward", "--target", "torch", "--examples", "8")
    assert checked.exit_code == 0 and "softmax_backward" in checked.output
    for arguments in (("compile", "adamw"), ("show", "adamw"), ("check", "adamw", "--target", "torch")):
        refused = kgen(*arguments, "--backward")
        assert refused.exit_code == 1 and "adamw has no backward: it writes `p` in place" in refused.output


def test_fmt_sets_a_file_well_and_check_tells() -> None:
    Path("s.k").write_text("# doc\nf(x:T[...])->y:T[...]\ny=x*2 # twice\n")
    assert kgen("fmt", "--check", "s.k").exit_code == 1
    assert kgen("fmt", "s.k").exit_code == 0
    assert Path("s.k").read_text() == "# doc\nf(x: T[...]) -> y: T[...]\n\ny = x * 2  # twice\n"
    assert kgen("fmt", "--check", "s.k").exit_code == 0
    assert kgen("fmt", "-", input="f(x:T[...])->y:T[...]\ny=x\n").stdout == "f(x: T[...]) -> y: T[...]\n\ny = x\n"


def test_fmt_keeps_a_files_mode_and_links() -> None:
    Path("s.k").write_text("f(x:T[...])->y:T[...]\ny=x\n")
    os.chmod("s.k", 0o600)
    Path("link.k").symlink_to("s.k")
    assert kgen("fmt", "link.k").exit_code == 0
    assert Path("link.k").is_symlink() and stat.S_IMODE(Path("s.k").stat().st_mode) == 0o600
    assert Path("s.k").read_text() == "f(x: T[...]) -> y: T[...]\n\ny = x\n"


def test_the_bundled_specs_are_well_set() -> None:
    done = kgen("fmt", "--check", *(str(p) for p in (ROOT / "specs").glob("*.k")))
    assert done.exit_code == 0, done.output


def test_list_and_version() -> None:
    listed = kgen("list").stdout
    assert "gelu_tanh" in listed and [line for line in listed.splitlines() if line[:1].strip()] == [*families()]
    softmin = "  softmin(x: T[..., N]) -> y: T[..., N]\n      Softmin: the softmax of what is turned about\n"
    assert softmin in listed and softmin in kgen("list", "softmax").stdout and softmin not in kgen("list", "norms", "rope").stdout
    unknown = kgen("list", "nothing")
    assert unknown.exit_code == 2 and "there is no family nothing" in unknown.stderr
    assert kgen("--version").stdout == f"kgen, version {__version__}\n"
    done = subprocess.run([sys.executable, "-m", "kgen", "--version"], capture_output=True, text=True)
    assert done.stdout == f"kgen, version {__version__}\n"


def test_a_wrong_command_line_exits_with_2_and_a_suggestion() -> None:
    assert kgen("compile").exit_code == 2
    assert kgen("compile", GELU, "--target", "metal").exit_code == 2
    assert "Did you mean `compile`?" in kgen("complie", GELU).output
    assert "kgen compile gelu.k" in kgen("gelu.k").output
    assert kgen("check").exit_code == 2


def test_check_reports_figures_and_what_it_left_out() -> None:
    done = kgen("check", GELU, "--examples", "8")
    assert done.exit_code == 0, done.output
    head, row = done.stdout.splitlines()
    assert row.startswith("PASS  gelu") and "cpp" in row and "f32 error" in head and "ulp" not in head
    import torch

    if not torch.cuda.is_available():
        assert "left out triton: there is no CUDA device" in done.stderr


def test_a_reduction_is_compiled_shown_and_checked(built_quickly: None) -> None:
    Path("s.k").write_text("f(x: T[..., N]) -> y: T[...]\ny = sum[N](x)\n")
    assert kgen("compile", "s.k").exit_code == 0
    assert "rows over [...], each of [N]" in kgen("show", "s.k", "--stage", "schedule").stdout
    done = kgen("check", "s.k", "--examples", "5", "-v")
    assert done.exit_code == 0 and "worst ulp" in done.stdout, done.output


def test_a_call_is_timed_beside_eager_gelu() -> None:
    done = kgen("bench", "silu", "--call", "--against", "none", "--json", "calls.json")
    assert done.exit_code == 0, done.output
    eager, fresh, given = json.loads(Path("calls.json").read_text())
    assert (eager["what"], eager["more"], eager["ratio"]) == ("F.gelu", 0, 1)
    assert [(r["kernel"], r["what"], r["elements"]) for r in (fresh, given)] == [("silu", "cpp", 1024), ("silu", "cpp out=", 1024)]
    assert fresh["ratio"] == fresh["us"] / eager["us"] and fresh["more"] == fresh["us"] - eager["us"]
    assert len(done.stdout.splitlines()) == 4
    assert kgen("bench", "silu", "--call", "--plot", "calls.png").exit_code == 2


def test_gradients_are_timed_beside_their_peers() -> None:
    done = kgen("bench", "silu", "--backward", "--target", "cpp", "--against", "eager", "--elements", "4096", "--json", "times.json")
    assert done.exit_code == 0, done.output
    kept = json.loads(Path("times.json").read_text())
    assert [r["what"] for r in kept] == ["cpp", "eager"] and all(r["kernel"] == "silu backward" and r["bytes"] == 3 * 4 * 4096 for r in kept)
    assert kgen("bench", "silu", "--backward", "--call").exit_code == 2
    assert "writes `p` in place" in kgen("bench", "adamw", "--backward", "--elements", "64").output


def test_no_colour_where_there_is_no_terminal() -> None:
    Path("bad.k").write_text(BAD)
    assert "\x1b" not in kgen("compile", "bad.k", GELU).output


def test_compile_loads_neither_torch_nor_triton_and_takes_little_more_than_its_imports() -> None:
    code = (
        "import sys; sys.argv = ['kgen', 'compile', sys.argv[1]]\n"
        "from kgen.cli import main\n"
        "try: main()\n"
        "except SystemExit as e: assert not e.code\n"
        "bad = {'torch', 'triton', 'numpy', 'matplotlib', 'sympy', 'lark'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    best = {"compile": 9.0, "imports": 9.0}
    for _ in range(2):
        for what, text in (("compile", code), ("imports", "import click, jinja2, platformdirs, sympy")):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run([sys.executable, "-c", text, GELU], capture_output=True, text=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            best[what] = min(best[what], after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            assert done.returncode == 0, done.stderr
    # Processor time, beside what importing some libraries takes on this machine (0.5 s where that takes 0.6).
    assert best["compile"] < 2 * best["imports"]


def test_what_there_is_to_use_is_listed_before_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", "import kgen; print(dir(kgen)); kgen.testing.check"], capture_output=True, text=True)
    assert "'kernel', 'load', 'loads', 'optim', 'patch', 'testing'" in done.stdout and not done.stderr


def test_importing_kgen_loads_nothing_heavy() -> None:
    code = "import kgen, sys; print(sorted({'torch', 'triton', 'sympy', 'jinja2', 'click', 'kgen.syntax', 'kgen.ops'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_a_command_that_needs_torch_says_so_without_it() -> None:
    commands = ["check gelu", "fuzz --minutes 0", "bench gelu", "tune gelu", "show gelu --stage ptx"]
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from click.testing import CliRunner\n"
        "from kgen.cli import main\n"
        f"for line in {commands!r}:\n"
        "    done = CliRunner().invoke(main, line.split())\n"
        "    print(done.exit_code, done.stdout, done.stderr.split('\\n')[:2])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for command, line in zip(commands, done.stdout.splitlines(), strict=True):
        said = f"error: `kgen {command.split()[0]}` needs PyTorch, which is not installed"
        assert line == f"1  {[said, '  = help: pip install torch']}"


def _compilers_anew() -> None:
    from kgen.runtime import build

    build.compiler.cache_clear()
    build.prove.cache_clear()


@pytest.fixture
def compilers() -> Iterator[None]:
    """The compiler is looked for anew, in the test and after it."""
    _compilers_anew()
    yield
    _compilers_anew()


@pytest.mark.parametrize("command", [("check", "gelu", "--target", "cpp"), ("fuzz", "--target", "cpp", "--minutes", "0"), ("bench", "gelu", "--target", "cpp")])
@pytest.mark.parametrize(
    ("named", "said"), [("nope", "CXX names nope, and there is no such program"), ("false", "fails on an empty function (exit code 1): it said nothing")]
)
def test_a_compiler_that_does_not_work_is_named(command: tuple[str, ...], named: str, said: str, compilers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", named)
    done = kgen(*command)
    assert done.exit_code == 1 and said in done.stderr and named in done.stderr and not done.stdout, done.output


def test_a_compiler_that_fails_is_quoted(compilers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("broken").write_text("#!/bin/sh\necho 'internal error: out of patience' >&2\nexit 3\n")
    Path("broken").chmod(0o755)
    monkeypatch.setenv("CXX", str(Path("broken").resolve()))
    done = kgen("check", "gelu", "--target", "cpp")
    assert done.exit_code == 1 and "(exit code 3): internal error: out of patience" in done.stderr
    import kgen as package

    with pytest.raises(package.KgenError, match="does not build"):  # a call does not fall back in silence
        import torch

        package.loads("f(x: T[...]) -> y: T[...]\ny = x * 0.12345")(torch.ones(3))


@pytest.mark.parametrize("command", ["check", "show"])
def test_what_is_interrupted_exits_with_130(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kgen.cli import check, show

    def interrupted(*_: str) -> None:
        raise KeyboardInterrupt

    for module in (check, show):
        monkeypatch.setattr(module, "load_spec", interrupted)
    done = kgen(command, "gelu")
    assert done.exit_code == 130 and "interrupted" in done.stderr


def test_an_interrupted_campaign_keeps_what_it_found_and_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    from kgen.testing import campaigns

    def run(self: campaigns.Campaign, *_: object) -> campaigns.State:
        self.interrupted = True
        self.state.programs, self.state.failures = 7, ["agrees-1.k"]
        return self.state

    monkeypatch.setattr(campaigns.Campaign, "run", run)
    done = kgen("fuzz", "--target", "torch", "--keep", "here")
    assert done.exit_code == 130 and "7 programs" in done.stdout and "kept here/agrees-1.k" in done.stderr and "interrupted" in done.stderr
    Path("taken").write_text("a file")
    done = kgen("fuzz", "--target", "torch", "--keep", "taken/here")
    assert done.exit_code == 1 and "cannot write taken/here/seed-0-torch.json" in done.stderr


def test_a_cuda_source_has_its_library_beside_it_or_stands_alone(tmp_path: Path) -> None:
    tmp_path /= "build"
    done = kgen("compile", "softmax", "gelu", "--target", "cuda", "-o", str(tmp_path))
    assert done.exit_code == 0, done.output
    for name, most in (("softmax", 150), ("gelu", 90)):
        source = (tmp_path / name / f"{name}.cu").read_text()
        assert source.count("\n") <= most
        included = {p.name: p.read_text() for p in (tmp_path / name).glob("*.cuh")}
        needed = set(re.findall(r'#include "(.*)"', "".join([source, *included.values()])))
        assert needed == set(included) and "kgen_numbers.cuh" in needed
    assert kgen("compile", "softmax", "--target", "cuda", "--standalone", "-o", str(tmp_path / "alone")).exit_code == 0
    assert [p.name for p in (tmp_path / "alone" / "softmax").iterdir()] == ["softmax.cu"]
    assert '#include "' not in (tmp_path / "alone" / "softmax" / "softmax.cu").read_text()


def test_dtypes_that_are_not_asked_for_are_left_out(tmp_path: Path) -> None:
    tmp_path /= "build"
    assert kgen("compile", "softmax", "--dtype", "bf16,f32", "-o", str(tmp_path)).exit_code == 0
    for name in ("softmax.cu", "softmax.cpp"):
        assert set(re.findall(r"softmax_(\w*\d\d)\(", (tmp_path / "softmax" / name).read_text())) == {"bf16", "f32"}
    floats = re.search(r"^FLOATS = (.*)$", (tmp_path / "softmax" / "softmax_triton.py").read_text(), re.M)
    assert floats and set(re.findall(r"torch\.(\w+)", floats.group(1))) == {"bfloat16", "float32"}
    for wrong in ("bf8", "U=bf16", "T=", "T=bf16,f31"):
        done = kgen("compile", "softmax", "--dtype", wrong, "-o", str(tmp_path / "no"))
        assert done.exit_code == 1 and "chooses nothing" in done.output and not (tmp_path / "no").exists()
