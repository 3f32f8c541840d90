"""What `kgen verify` finds, and what it does not: candidates that are wrong in one way each, and some that are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import kgen
from kgen import check as checker
from kgen.errors import KgenError
from kgen.testing import CheckFailed, verify
from kgen.testing.cases import Limits
from kgen.verify import Kind, Report, examine, plan
from kgen.verify.again import again
from kgen.verify.timed import APART, LAUNCH, TRIES, _agreed, _apart
from tests import warm
from tests.verify import candidates

HERE = Path(candidates.__file__)


def report(name: str, spec: str = "softmax", **options: Any) -> Report:
    options = {"examples": 5, "shrink": 0, "device": "cpu"} | options
    return examine(f"{HERE}:{name}", spec, **options)


@pytest.mark.parametrize("name", ["right", "into", "destination", "ModelNew", "refuses_f64"])
def test_what_is_right_passes(name: str) -> None:
    found = report(name)
    assert found.ok and found.status == 0, found
    assert found.cases > 8 and found.elements > 10_000
    assert (name == "refuses_f64") == bool(found.refused)


def test_what_torch_has_passes() -> None:
    found = examine(torch.nn.functional.softplus, "softplus", examples=3, device="cpu")
    assert found.ok and found.operators == {"softplus": 1}, found
    assert examine("torch.nn.functional:silu", "silu", examples=4, device="cpu").ok


def test_the_bound_is_that_of_the_formula_as_it_is_written() -> None:
    """Eager's gelu adds 1 to erf, which loses digits that the spec's erfc keeps; of infinity its vectors make NaN."""
    written = "gelu(x: T[...]) -> y: T[...]\n\ny = x * (0.5 * (1 + erf(x * sqrt(0.5))))\n"
    assert examine(torch.nn.functional.gelu, written, examples=8, special=False, device="cpu").ok
    assert examine(torch.nn.functional.gelu, "gelu", special=False, device="cpu", shrink=0).findings[0].kind is Kind.VALUE


def test_torchs_compiler_is_not_loaded() -> None:
    found = report("without_a_compiler", examples=2)
    assert found.ok and found.operators == {"_softmax": 1}, found


def test_results_in_place_pass() -> None:
    assert report("adamw", "adamw").ok


WRONG = {
    "unshifted": Kind.NAN,
    "empty": Kind.UNWRITTEN,
    "narrow": Kind.DTYPE,
    "transposed": Kind.SHAPE,
    "twice": Kind.RETURNED,
    "subclass": Kind.RETURNED,
    "raises": Kind.RAISES,
    "writes_its_input": Kind.INPUT,
    "writes_behind": Kind.OUTSIDE,
    "reads_behind": Kind.READ,
    "by_size": Kind.REMEMBERED,
    "by_its_beginning": Kind.REMEMBERED,
    "one_buffer": Kind.CHANGED,
    "later": Kind.CHANGED,
    "strides_ignored": Kind.VALUE,
    "crashes": Kind.CRASH,
    "leaves": Kind.CRASH,
    "patches": Kind.VALUE,
    "shared": Kind.STRIDES,
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name: str) -> None:
    found = report(name, examples=40)
    assert not found.ok and found.status == 1
    assert WRONG[name] in {f.kind for f in found.findings}, found


def test_a_result_in_place_that_is_not_written() -> None:
    found = report("adamw_forgets", "adamw")
    assert [f.result for f in found.findings] == ["v'"] and found.findings[0].kind is Kind.VALUE


def test_what_hangs_or_takes_all_memory_is_ended() -> None:
    assert [f.kind for f in report("hangs", timeout=1.0).findings] == [Kind.HANG]
    assert [f.kind for f in report("takes_all_memory", memory=1.0).findings] == [Kind.MEMORY]
    assert report("right", examples=2).ok  # the next one runs


def test_more_is_held_where_it_is_asked_for() -> None:
    assert report("other_bits").ok
    assert [f.kind for f in report("other_bits", deterministic=True).findings] == [Kind.RUNS]
    assert report("by_batch").ok
    assert [f.kind for f in report("by_batch", batch_invariant=True).findings] == [Kind.BATCH]
    assert report("right", deterministic=True, batch_invariant=True, examples=4).ok
    found = report("right", own=True)
    assert [f.kind for f in found.findings] == [Kind.OWN] and "exp" in found.findings[0].message


def test_strides_that_are_not_promised_are_to_be_refused() -> None:
    found = report("refuses_strides", examples=14)
    assert [f.kind for f in found.findings[:1]] == [Kind.RAISES], str(found)
    found = report("refuses_strides", contiguous=True, examples=14)
    assert found.ok and any("not contiguous" in line for line in found.refused), found
    assert not report("strides_ignored", contiguous=True, examples=14).ok


def test_dtypes_and_sizes_that_are_claimed() -> None:
    assert report("refuses_f64", dtypes=("f64",)).findings[0].kind is Kind.RAISES
    assert report("refuses_f64", dtypes=("f32",), sizes={"N": (64, 128)}, leading=(2,)).ok
    with pytest.raises(kgen.KgenError, match="there is no dim K"):
        report("right", sizes={"K": 1})


def test_a_failure_is_made_small_and_stands_alone(tmp_path: Path) -> None:
    found = report("unshifted", shrink=3.0).findings[0]
    assert found.small and len(found.small) <= len(found.case)
    (tmp_path / "shown.py").write_text(found.python)
    done = warm.run(tmp_path / "shown.py")
    assert done.returncode == 1 and "AssertionError" in done.stderr, found.python + done.stderr


@pytest.mark.parametrize("name", ["writes_its_input", "too_much", "Scaled", "twice"])
def test_a_failure_is_shown_without_this_package(name: str) -> None:
    found = report(name, shrink=0.1).findings[0]
    assert "kgen" not in found.python, found.python
    with pytest.raises(AssertionError):
        exec(compile(found.python, "<shown>", "exec"), {})


def test_a_failure_that_a_call_does_not_show_is_examined_again() -> None:
    found = report("empty", shrink=0.1).findings[0]
    with pytest.raises(CheckFailed, match="unwritten: result y: nan at"):
        exec(compile(found.python, "<shown>", "exec"), {})


def test_what_can_be_done_is_said() -> None:
    assert "--contiguous" in report("refuses_strides", examples=14).findings[0].help
    in_f32 = report("computes_in_f32", dtypes=("f64",), special=False).findings[0]
    assert in_f32.kind is Kind.VALUE and "the digits of an f32" in in_f32.help
    assert "rounded to f16 once" in report("rounds_on_the_way", dtypes=("f16",), special=False).findings[0].help
    digits = examine(torch.nn.functional.gelu, "gelu", special=False, device="cpu", shrink=0, dtypes=("f32",)).findings[0]
    assert "erfc(x) as 1 - erf(x)" in digits.help
    hangs = report("hangs", timeout=1.0).findings[0]
    assert "in hangs" in hangs.message and "candidates.py" in hangs.message


def test_a_callable_that_no_other_process_imports_runs_here() -> None:
    scale = 1.0
    assert verify(lambda x: torch.softmax(x * scale, -1), "softmax", examples=4, device="cpu").ok
    with pytest.raises(CheckFailed, match="value: result y"):
        verify(lambda x: torch.softmax(x * (scale + 1e-3), -1), "softmax", examples=4, shrink=0, device="cpu")
    with pytest.raises(kgen.KgenError, match="cannot be imported by another process"):
        examine(lambda x: x, "softmax", isolated=True)


def test_what_names_no_candidate_says_so(tmp_path: Path) -> None:
    for text, said in {
        "nothing.py:f": "cannot read nothing.py",
        f"{HERE}:nothing": "has no nothing",
        "no.such.module:f": "there is no module no.such.module",
        "right": "is no candidate",
    }.items():
        with pytest.raises(kgen.KgenError, match=said):
            examine(text, "softmax")
    (tmp_path / "one.py").write_text("import nothing_of_that_name\ndef f(x): return x\n")
    found = examine(tmp_path / "one.py", "softmax")
    assert [f.kind for f in found.findings] == [Kind.LOADS] and "nothing_of_that_name" in found.findings[0].message
    (tmp_path / "two.py").write_text("def f(x, y, z): return x\n")
    assert "it takes (x, y, z)" in examine(tmp_path / "two.py", "softmax").findings[0].message


def test_a_file_of_kgens_is_built_and_an_edit_is_found(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from kgen.cli import main

    assert CliRunner().invoke(main, ["compile", "softmax", "--target", "cpp", "--dtype", "f32", "-o", str(tmp_path)]).exit_code == 0
    path = tmp_path / "softmax" / "softmax.cpp"
    text = path.read_text().replace("-O3", "-O0")  # its own line builds it
    path.write_text(text)
    assert examine(path, "softmax", examples=8, device="cpu", dtypes=("f32",)).ok
    edited = text.replace("brief_exp<T>(x - max_N)", "brief_exp<T>(x)")
    assert edited != text
    path.write_text(edited)
    found = examine(path, "softmax", examples=20, device="cpu", dtypes=("f32",), shrink=0)
    assert found.findings and found.findings[0].kind in (Kind.NAN, Kind.VALUE), found
    path.write_text(text.replace("const int64_t* size", "const int64_t* sise", 1))
    assert examine(path, "softmax", device="cpu").findings[0].kind is Kind.LOADS


def test_gradients_are_held_through_autograd_and_by_themselves() -> None:
    assert report("differentiable", backward=True, examples=2).ok
    found = report("wrong_gradient", backward=True, examples=1)
    assert [(f.kind, f.gradient, f.result) for f in found.findings] == [(Kind.VALUE, True, "dx")], found
    assert "gradients=True" in found.findings[0].python
    assert report("differentiable", gradient=f"{HERE}:its_gradient", examples=1).ok
    with pytest.raises(kgen.KgenError, match="has no backward"):
        report("adamw", "argmax", backward=True)


def test_a_static_file_is_held_at_its_sizes(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from kgen.cli import main

    asked = ["compile", "softmax", "--target", "cpp", "--dtype", "f32", "--static", "N=48", "-o", str(tmp_path)]
    assert CliRunner().invoke(main, asked).exit_code == 0
    path = tmp_path / "softmax" / "softmax.cpp"
    found = examine(path, "softmax", examples=8, device="cpu")
    assert found.ok and any("permuted" in line for line in found.refused), found
    path.write_text(path.read_text().replace("constexpr int64_t N = 48", "constexpr int64_t N = 47"))
    assert not examine(path, "softmax", device="cpu", shrink=0).ok


def test_floats_of_8_bits_are_held() -> None:
    spec = "q(x: f32[...]) -> y: f8e4m3[...]\n\ny = f8e4m3(clamp(x, -400.0, 400.0))\n"  # beyond, torch's versions differ
    assert report("to_8_bits", spec, examples=3, special=False).ok
    found = report("to_8_bits_by_16", spec, examples=12, special=False).findings
    assert [f.kind for f in found] == [Kind.VALUE]
    assert report("from_8_bits", "d(x: f8e4m3[...]) -> y: f32[...]\n\ny = f32(x)\n", examples=3).ok


def test_the_commands_exit_status_and_json(tmp_path: Path) -> None:
    import json

    from click.testing import CliRunner

    from kgen.cli import main

    def run(*given: str) -> tuple[int, str]:
        asked = ["verify", *given, "--spec", "softmax", "--device", "cpu", "--examples", "2", "--shrink", "0"]
        done = CliRunner().invoke(main, asked)
        return done.exit_code, done.stdout

    code, said = run(f"{HERE}:destination", f"{HERE}:crashes", f"{HERE}:destination", "--json", "-")
    found = json.loads(said)
    assert code == 1 and [r["ok"] for r in found] == [True, False, True]
    assert found[1]["findings"][0]["kind"] == "crash" and found[1]["status"] == 1
    code, said = run(f"{HERE}:destination")
    assert code == 0 and "PASS" in said
    assert run(f"{HERE}:destination", "--sanitize")[0] == 3  # there is no GPU
    assert run(f"{HERE}:destination", "--size", "N")[0] == 2


def test_what_cannot_be_tried_here_is_no_failure(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from kgen.cli import main

    assert CliRunner().invoke(main, ["compile", "relu", "--target", "cuda", "--dtype", "f32", "-o", str(tmp_path)]).exit_code == 0
    found = examine(tmp_path / "relu" / "relu.cu", "relu", device="cpu")
    assert found.status == 3 and not found.findings and "is for a GPU" in found.untried[0], found
    asked = CliRunner().invoke(main, ["verify", str(tmp_path / "nothing.py"), "--spec", "relu"])
    assert asked.exit_code == 2, asked.output


@pytest.mark.parametrize(("name", "wrong"), [("right", ""), ("destination", ""), ("refuses_more", ""), ("counts_to_65536", "value")])
def test_places_that_are_counted_in_too_few_bits_are_found_in_rows_that_are_repeated(name: str, wrong: str) -> None:
    few = {"x": torch.randn(61, 33, generator=torch.Generator().manual_seed(0), dtype=torch.float32)}
    setting: dict[str, Any] = {"tall": 1 << 17, "way": "destination" if name == "destination" else "fresh"}
    if not wrong:
        return again(f"{HERE}:{name}", "softmax", few, **setting)
    with pytest.raises(CheckFailed, match=wrong):
        again(f"{HERE}:{name}", "softmax", few, **setting)


def test_rows_that_depend_on_one_another_are_not_repeated() -> None:
    dense = Limits(layouts=("dense",))
    specs = ("softmax", "gelu", "adamw", "mse", "dropout", "batchnorm_stats")
    cases = {spec: plan.repeatable(checker.plain(kgen.load(spec).kernel), dense, 0) for spec in specs}
    assert [spec for spec, case in cases.items() if case] == ["softmax", "gelu", "adamw"]
    x = cases["softmax"]["x"]
    assert x.shape == (61, 1024) and x.dtype.itemsize == 2


def test_sizes_that_a_candidate_takes_can_be_said() -> None:
    options: dict[str, Any] = {"multiples": {"N": 8}, "most": {"N": 4096}, "examples": 60, "every": True, "own": True}
    found = report("rows_of_vectors", **options)
    assert [f.kind for f in found.findings] == [Kind.OWN] and found.operators == {"_softmax": 1} and found.held["very long rows"], found
    assert report("rows_of_vectors", multiples={"N": 8}, examples=60).findings[0].kind is Kind.RAISES
    with pytest.raises(KgenError, match="there is no dim M"):
        report("rows_of_vectors", most={"M": 8})


def test_what_is_never_taken_is_made_small_too() -> None:
    found = report("never", shrink=5, memory=2).findings[0]
    assert found.kind is Kind.RAISES and "of other dtypes likewise" in found.message and "candidate(x_)" in found.python, found
    assert report("takes_all_memory", memory=2).findings[0].kind is Kind.MEMORY


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_told() -> None:
    found = report("right", device="cuda")
    assert found.status == 3 and found.untried == ["there is no CUDA device"]


def test_a_gpu_that_others_have_filled_is_no_fault_of_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgen.verify.held.WAITS", (0.0, 0.0))
    found = report("finds_no_memory", dtypes=("f32",))
    assert not found.findings and found.status == 3 and "want of memory" in found.untried[0], found


def test_two_clocks_disagree_where_work_is_hidden_and_not_where_the_machine_is_busy() -> None:
    events = [1.0] * 20
    assert not _apart(events, [1.0 + LAUNCH] * 20)
    assert not _apart(events, [1.1] * 6 + [4.0] * 14)  # other work has seven rounds of ten
    assert "the clock says 4 ms" in _apart(events, [4.0] * 20)
    assert _apart(events, [1.1] * 3 + [4.0] * 17)  # what is honest in a round of seven hides in the others
    assert not _apart([0.01] * 20, [0.01 * APART + LAUNCH] * 20)  # a launch takes longer than such a kernel
    assert not _apart(events, [])  # on a CPU there is one


def test_clocks_that_disagree_are_asked_again() -> None:
    """The figures are those of the first measurement at which they agree, so that what is hidden in the others counts for nothing."""
    honest, late = ([1.0] * 20, [1.1] * 20), ([1.0] * 20, [4.0] * 20)
    for found, asked in (([honest], 1), ([late, honest], 2), ([late] * (TRIES - 1) + [honest], TRIES), ([late] * (TRIES + 1), TRIES)):
        given = iter(found)
        assert bool(_apart(*_agreed(lambda given=given: next(given)))) == (found[-1] is late)
        assert len(found) - len([*given]) == asked
