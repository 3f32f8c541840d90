"""Campaigns: what must hold of any program holds of some, of every failure that was once found, and what does not hold is found,
shrunk, kept and replayed; a worker that dies costs one program, a campaign that is cut short goes on."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kgen import grad, rewrite, syntax
from kgen.backends import TARGETS
from kgen.check import check
from kgen.errors import KgenError
from kgen.ops import OPS
from kgen.testing import campaigns, checks, fuzz, properties, trees
from kgen.testing.properties import Violation
from tests.conftest import ROOT

torch = pytest.importorskip("torch", reason="torch is not installed")
FUZZED = sorted((ROOT / "tests" / "fuzzed").glob("*.k"))
COMPILED = "cpp" in checks.targets()[0]


def kernel(text: str) -> Any:
    return check(syntax.parse(text, "x"))


def said(found: list[fuzz.Failure]) -> str:
    return "\n\n".join(f"{f.broken} {f.target}: {f.message}\n{f.text}" for f in found)


@pytest.mark.parametrize("name", sorted({re.findall(r"^# property: (\w+)$", path.read_text(), re.M)[0] for path in FUZZED}))
def test_every_failure_that_was_found_is_gone(name: str) -> None:
    """The property that a program broke holds of it, operator by operator, and in C++ where it was C++ that broke it.  Programs whose values
    were wrong on CUDA and Triton alone are compiled by `tests/backends/test_compiled.py`, and held here by `-m slow`."""
    texts = {path: text for path in FUZZED if f"# property: {name}\n" in (text := path.read_text())}
    if name not in properties.ALONE:
        texts = {path: text for path, text in texts.items() if not re.search("^# target: (cuda|triton)$", text, re.M)}
    built = [path for path, text in texts.items() if "# target: cpp\n" in text]
    name = "agrees" if name == "builds" else name
    if name in properties.ALONE:
        assert not (found := fuzz.replay(texts, (), alone=(name,))), said(found)
        return
    found = fuzz.replay([path for path in texts if path not in built], ("torch",), alone=(), held=(name,))
    found += fuzz.replay(built, ("cpp",) if COMPILED else ("torch",), "-O0", alone=(), held=(name,))
    assert not found, said(found)


@pytest.mark.slow
def test_every_property_holds_of_every_failure_that_was_found() -> None:
    found = fuzz.replay(FUZZED, ("torch", *(("cpp",) if COMPILED else ())), "-O0")
    assert not found, said(found)


@pytest.mark.parametrize("target", ["cuda", "triton"])
def test_gradients_that_no_parameter_decides_are_not_asked_of_a_gpu(target: str) -> None:
    """They have no tensor that says which device is meant."""
    report = properties.gradients_agree(kernel("p(y: f32[]) -> da: f16[]\nda = clamp(1e-38, 0, 2) if 100 >= 100 else softplus(y)"), target)
    assert not report.cases and not report.failures


@pytest.mark.parametrize("seed", range(4))
def test_properties_hold_of_random_programs(seed: int) -> None:
    for number in range(2):
        text = fuzz.program_of(1000 + seed, number).text
        subject = fuzz.Subject(text, number)
        subject.prepare("torch")
        for name in (*properties.ALONE, *properties.ON_TARGET):
            what, said = fuzz.outcome(subject, name, "torch")
            assert what != "failed", f"{name}: {said}\n{text}"


def test_a_campaign_is_one_of_many(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """`--fuzz`: ten minutes on what runs here."""
    if not request.config.getoption("--fuzz"):
        pytest.skip("long: run with --fuzz")
    plan = campaigns.Plan(random.randrange(10**6), ("torch", *checks.targets()[0]), tmp_path)
    state = campaigns.Campaign(plan, max(1, (os.cpu_count() or 2) // 2)).run(10)
    assert not state.failed, "\n\n".join((tmp_path / name).read_text() for name in state.failures)


def _with_a_compiler(connection: Any) -> None:
    import subprocess

    os.setpgid(0, 0)
    connection.send(subprocess.Popen(["sleep", "60"]).pid)
    connection.recv()


def test_a_worker_s_compilers_end_with_it() -> None:
    import multiprocessing
    import time

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_with_a_compiler, args=(theirs,), daemon=True)
    process.start()
    compiler = ours.recv()
    campaigns.killed(process)
    process.join()
    state = Path(f"/proc/{compiler}/stat")
    until = time.monotonic() + 10
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < until:
        time.sleep(0.05)
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


# ------------------------------------------------------------------------------------------------ each property finds its bugs


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def halve(let: Any, defs: Any, build: Any) -> Any:
        made = rewrite._divide(let, defs, build)
        return None if made is None else defs[let.expr.operands[0].name]

    monkeypatch.setattr(rewrite, "RULES", (rewrite.Rule("wrong", "bits", halve),))
    with pytest.raises(Violation, match="the rule wrong changes y"):
        properties.rules_keep(kernel("f(x: T[..., N]) -> y: T[..., N]\n\ny = x / 2\n"))


def test_a_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    monkeypatch.setitem(OPS, "tanh", replace(OPS["tanh"], grad=("dy * (1 + y^2)",)))
    with pytest.raises(Violation, match="autograd's"):
        properties.backward_agrees(kernel("f(x: T[..., N]) -> y: T[..., N]\n\ny = tanh(x) * max[N](x)\n"))


def test_a_printer_that_drops_brackets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from kgen import typeset

    spec = kernel("f(x: T[...], y: T[...]) -> z: T[...]\n\nz = x - (y - x)\n")
    whole = typeset.format_file
    monkeypatch.setattr(typeset, "format_file", lambda file: whole(file).replace("(y - x)", "y - x"))
    with pytest.raises(Violation, match="printing changes"):
        properties.prints_and_parses(spec)


def test_a_source_that_knows_a_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from kgen.backends import backend

    spec = kernel("f(x: T[...]) -> z: T[...]\n\nz = x - 1\n")
    for target in ("triton", "cuda", "cpp"):
        own = type(backend(target)).render
        monkeypatch.setattr(type(backend(target)), "render", lambda self, k, *rest, own=own: own(self, k, *rest).replace("vq00", "vq00 + 0"))
    with pytest.raises(Violation, match="renaming changes the"):
        properties.renames(spec)


class _Wrong:
    """A kernel whose results are wrong in a way that depends on the number of rows."""

    def __init__(self, kernel: Any, change: Any):
        from kgen.runtime.kernel import Kernel

        self.own, self.change = Kernel(kernel), change

    def _run(self, *args: Any) -> Any:
        return self.change(self.own._run(*args))


def test_a_wrong_result_and_a_row_that_depends_on_others_are_found() -> None:
    spec = kernel("f(x: T[..., N]) -> y: T[..., N]\n\ny = x - max[N](x)\n")
    with pytest.raises(Violation, match="exactly"):
        properties.agrees(spec, runnable=_Wrong(spec, lambda y: y * 1.01))
    with pytest.raises(Violation, match="row 0 of"):
        properties.rows_alone(spec, runnable=_Wrong(spec, lambda y: y * (1 + 2.0**-20 * (y.shape[0] > 1))))
    properties.rows_alone(spec)


# ------------------------------------------------------------------------------------------------ campaigns


def test_a_failure_is_shrunk_structurally() -> None:
    """What fails is a `tanh` of a sum: all else goes."""
    text = trees.parsed(
        "f(x: T[..., N], w: T[N], s: float = 2) -> (y: T[..., N], z: i64[N])\n\n"
        "h = exp(x * w) + tanh(sum[N](x + s) * 0.5)\ny = h if x > 0 else log(2 + abs(w))\nz = index[N] + 2\n"
    ).text

    def fails(f: fuzz.Failure) -> str:
        return "it is there" if "tanh(" in f.text and "sum[" in f.text else ""

    found = fuzz.shrunk(fuzz.Failure("agrees", "torch", 0, "long", text), 20, fails)
    assert found.message == "it is there"
    assert found.text == "f(x: T[N]) -> h: T[]\n\nh = tanh(sum[N](x))\n"


def test_a_campaign_keeps_failures_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """The state that is written says what is done: blocks that come back out of order, and what was counted."""
    plan = campaigns.Plan(5, ("torch",), tmp_path)
    state = campaigns.State.read(plan)
    for block in (1, 0, 3):
        state.finish(block, {"programs": 8, "refused": 0, "failed": 3}, {"agrees torch": [8, 0, 32, 1000, 3, 0]}, {"agrees torch": 1500})
    state.write(plan)
    again = campaigns.Campaign(plan)
    assert (again.state.next, again.state.done, again.state.programs) == (2, [3], 24)
    assert [again.next_block() for _ in range(3)] == [2, 4, 5]
    failure = fuzz.Failure("agrees", "torch", 7, "it is off", "f(x: T[]) -> y: T[]\n\ny = x\n")
    again.keep(failure)
    again.keep(fuzz.Failure("agrees", "torch", 7, "it is off", "f() -> y: f32[]\n\ny = 2.\n"), instead_of=failure)
    (kept,) = tmp_path.glob("*.k")
    assert "# seed: 7\n# message: it is off\n\nf() -> y" in kept.read_text()
    assert json.loads(campaigns.State.path(plan).read_text())["failures"] == [kept.name]
    (tmp_path / "seed-5-torch.json").write_text("{torn")
    assert campaigns.State.read(plan).programs == 0


def test_a_failure_that_finds_no_room_is_told_and_the_longer_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = campaigns.Campaign(campaigns.Plan(5, ("torch",), tmp_path))
    failure = fuzz.Failure("agrees", "torch", 7, "it is off", "f(x: T[]) -> y: T[]\n\ny = x\n")
    campaign.keep(failure)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(KgenError, match=r"no space left on device[^$]*f\(\) -> y"):
        campaign.keep(fuzz.Failure("agrees", "torch", 7, "it is off", "f() -> y: f32[]\n\ny = 2.\n"), instead_of=failure)
    assert {p.name for p in tmp_path.iterdir()} == {failure.name, "seed-5-torch.json"}


def test_kernels_that_are_built_together_are_those_that_are_built_alone() -> None:
    if not COMPILED:
        pytest.skip("there is no C++ compiler")
    subjects = [fuzz.Subject(f"{name}(x: T[..., N]) -> y: T[..., N]\n\ny = {body}\n", 1) for name, body in
                (("one", "tanh(x)"), ("two", "atan2(x, max[N](tanh(x)))"))]  # fmt: skip
    for subject in subjects:
        subject.prepare("cpp")
    fuzz.build_together([b for s in subjects for b in s.builds()], "-O1")
    for subject in subjects:
        assert subject.runnable._launcher("cpp", torch.device("cpu")).entries, "they do not build together"
        assert fuzz.outcome(subject, "agrees", "cpp")[0] == "held"
        assert fuzz.outcome(subject, "gradients_agree", "cpp")[0] == "held"


def test_what_a_gpu_would_build_is_built_without_one() -> None:
    absent = pytest.importorskip("kgen.testing.absent")
    if absent.missing("cuda"):
        pytest.skip(absent.missing("cuda"))
    spec = kernel("f(x: T[..., N]) -> y: T[..., N]\n\ny = x - max[N](x)\n")
    assert properties.compiles(spec, "cuda", numbers=(0,)).cases == 1

    class Broken(absent.Absent):
        def compile(self, *_: Any) -> None:
            raise KgenError("no instance of function template")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="no instance"):
        patch.setattr(absent, "Absent", Broken)
        properties.compiles(spec, "cuda", numbers=(0,))


def test_a_kept_file_is_compiled_again_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from kgen.cli import main
    from kgen.testing import absent

    seen: list[tuple[str, ...]] = []
    monkeypatch.setattr(absent, "missing", lambda target: "")
    monkeypatch.setattr(fuzz, "replay", lambda files, able, held: seen.append((*able, *held)) or [])
    said = CliRunner().invoke(main, ["fuzz", "--compile-only", "--target", "cuda", "--replay", str(FUZZED[0])])
    assert said.exit_code == 0 and seen == [("cuda", "compiles")], said.output


def test_a_result_that_is_wrong_over_its_parameter_is_found() -> None:
    spec = kernel("f(x: T[..., N]) -> y: T[..., N]\n\ny = x - max[N](x)\n")

    class Wrong(_Wrong):
        def _run(self, args: tuple, given: dict[str, Any], out: Any, target: str) -> Any:
            y = self.own._run(args, given, out, target)
            return y if out is None else y + 1

    properties.in_place(spec)
    with pytest.raises(Violation, match="y written over x"):
        properties.in_place(spec, runnable=Wrong(spec, None))


def test_names_that_become_one_are_found() -> None:
    from kgen.testing import textual

    plain = "void f(int vq00) {\n    for (int i = 0; i < vq00; i++) step(i, vq00);\n}\n"
    assert not textual._captured(plain, plain.replace("vq00", "j"), "cpp")
    assert "`i` stands for" in textual._captured(plain, plain.replace("vq00", "i"), "cpp")
    assert not textual._captured("void f(int vq00) { g(vq00.i); }", "void f(int i) { g(i.i); }", "cpp")


def test_a_campaign_ends_with_the_programs_that_were_asked_for(tmp_path: Path) -> None:
    plan = campaigns.Plan(5, ("torch",), tmp_path, programs=16)
    campaign = campaigns.Campaign(plan)
    assert [campaign.next_block() for _ in range(3)] == [0, 1, None]
    assert plan.alone and not campaigns.Plan(5, ("cuda", "triton"), tmp_path).alone


def test_a_campaign_on_gpus_shares_its_cases_out_among_targets_in_turn(tmp_path: Path) -> None:
    """Of a program both cases with CUDA or one with each, of long rows and without; blocks are small, as nothing is shared."""
    spec, seen, due = "f(x: T[..., N]) -> y: T[..., N]\n\ny = x - max[N](x)\n", [], Counter[tuple[str, str]]()
    for seed in range(1, 25):
        subject = fuzz.Subject(spec, seed)
        subject.sampled = True
        for target in ("cuda", "triton"):
            numbers, long = subject.cases(target)
            assert {*numbers} <= {*subject.numbers} and getattr(long, "sizes", None) in (getattr(subject.long, "sizes", None), None)
            assert ({*getattr(long, "layouts", ())} == {"dense"}) == subject.due("in_place", target)
            seen.append((target, len(numbers), bool(long and long.sizes)))
            due.update((name, target) for name in properties.ON_TARGET if subject.due(name, target))
        assert {n for target in ("cuda", "triton") for n in subject.cases(target)[0]} == {*subject.numbers[-2:]}
        assert subject.cases("cpp") == (subject.numbers, subject.long)
        assert all(subject.due(name, "cpp") for name in properties.ON_TARGET)
    assert {*seen} == {(t, n, long) for t, n in (("cuda", 1), ("cuda", 2), ("triton", 1)) for long in (True, False)}
    assert due["agrees", "cuda"] == due["agrees", "triton"] == due["gradients_agree", "cuda"] + due["gradients_agree", "triton"] == 24
    assert all(due[name, target] for name in properties.ON_TARGET for target in ("cuda", "triton")), due
    large = [fuzz.Subject(f"f(x: T[N]) -> y: T[N]\n\ny = {' + '.join(['x'] * (fuzz.LARGE + 1))}\n", seed) for seed in range(1, 25)]
    for subject in large:
        subject.sampled = True
        numbers = [n for target in ("cuda", "triton") if subject.due("agrees", target) for n in subject.cases(target)[0]]
        assert {*numbers} == {*subject.numbers[-2:]} and subject.due("gradients_agree", "cuda")
    assert sum(subject.due("agrees", "triton") for subject in large) < 0.7 * len(large)
    plan = campaigns.Plan(5, ("cuda", "triton"), tmp_path, programs=3)
    assert [campaigns.Campaign(plan).next_block(), plan.block] == [0, 2]
    campaigns.State(5, plan.targets).write(plan)  # of a version with other blocks
    assert campaigns.State.read(plan).block == 2


def test_tritons_launches_are_made_as_its_own_launcher_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from kgen.runtime import driver
    from kgen.testing.quickly import Launcher

    launched: list[Any] = []

    def launch(*given: Any) -> int:
        *settings, places, _ = given
        launched.append((*settings, *(ctypes.c_int64.from_address(p).value for p in places)))
        return 0

    monkeypatch.setattr(driver, "_driver", lambda: SimpleNamespace(cuLaunchKernel=launch))
    plain = SimpleNamespace(num_ctas=1, profile_scratch_size=0)
    signature = {"x": "*fp32", "KINDS": "constexpr", "n": "i64", "e": "fp64"}
    assert Launcher.takes(signature, plain)
    assert not Launcher.takes({"x": ("*fp32", "i32")}, plain) and not Launcher.takes(signature, SimpleNamespace(num_ctas=2))
    tensor = SimpleNamespace(is_cuda=True, data_ptr=lambda: 4096)
    given = (7, 99, (4, 1, 1024), None, None, None, tensor, ("along",), -5, 0.5)
    Launcher(signature, plain)(3, 2, 1, *given)
    Launcher(signature, plain)(0, 1, 1, *given)
    half = 0x3FE0 << 48
    assert launched == [(99, 3, 2, 1, 128, 1, 1, 1024, 7, 4096, -5, half, 0, 0)]
    with pytest.raises(ValueError, match="argument 0 is not on a GPU"):
        Launcher(signature, plain)(1, 1, 1, *given[:-4], SimpleNamespace(is_cuda=False), *given[-3:])


def test_blocks_but_one_in_four_are_optimised_little_by_nvrtc(tmp_path: Path) -> None:
    """Which keeps what is made so apart, by its options; then all is as before."""
    from kgen.runtime import driver, nvrtc
    from kgen.testing.quickly import FAST_COMPILE

    plain, knows = nvrtc.OPTIONS, driver.available() and int(driver.version().split(".")[0]) >= 13
    for targets in (("cuda", "triton"), ("cpp",)):
        plan = campaigns.Plan(5, targets, tmp_path)
        for level in campaigns.LEVELS:
            (options,) = campaigns._at_level(plan, level, (nvrtc.OPTIONS for _ in "1"))
            assert options == (*plain, *[FAST_COMPILE] * (knows and level == "-O0" and "cuda" in targets))
            assert plain == nvrtc.OPTIONS


def test_what_a_source_says_of_the_c_library_stands_in_no_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler finds no vector functions that are declared in one: what is built together would be other code than users run."""
    from kgen.runtime import build

    seen: list[str] = []

    def refused(source: str, *_: Any) -> bytes:
        seen.append(source)
        raise KgenError("enough")

    monkeypatch.setattr(build, "build", refused)
    subjects = [fuzz.Subject(f"{name}(x: T[..., N]) -> y: T[...]\n\ny = max[N]({name}(x))\n", 1) for name in ("sin", "tanh")]
    fuzz.build_together([b for s in subjects for b in s.builds()])
    head, *bodies = seen[0].split("namespace build_")
    assert len(bodies) == 2 and "#include <cmath>" in head
    assert not any("__attribute__((simd" in body or "#include" in body or 'extern "C" {' in body for body in bodies)


def test_lost_programs_are_kept(tmp_path: Path) -> None:
    """A worker that died or hangs: its program becomes a file, its block is given to another worker without it."""
    plan = campaigns.Plan(5, ("torch",), tmp_path)
    campaign = campaigns.Campaign(plan)

    class Process:
        exitcode = -11

    class Hand:
        process, block, number, stage, target = Process(), 0, 3, "agrees", "cpp"
        skipped: set[int] = {1}
        given: list = []

        def end(self) -> None:
            pass

        def give(self, block: int, skipped: set[int]) -> None:
            self.given.append((block, skipped))

    hand: Any = Hand()
    campaign.hands = [hand]
    campaign.replace = lambda old: old  # type: ignore[method-assign]
    campaign.lost(hand, "no end")
    assert hand.given == [(0, {1, 3})] and campaign.state.failed == 1
    (kept,) = tmp_path.glob("agrees-*.k")
    assert "# message: the process died of SIGSEGV" in kept.read_text() and "p3(" in kept.read_text()


def test_failures_before_a_property_is_looked_at_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every program fails at once (a module is missing), the last line says so."""
    import torch

    class Connection:
        asked: list = [(0, ()), None]
        said: list[tuple] = []

        def recv(self) -> Any:
            return self.asked.pop(0)

        def send(self, message: tuple) -> None:
            self.said.append(message)

    def subject(*_: Any, **__: Any) -> None:
        raise ImportError("no module")

    monkeypatch.setattr(campaigns, "Subject", subject)
    monkeypatch.setattr(campaigns.signal, "signal", lambda *_: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    plan, connection = campaigns.Plan(5, ("torch",), tmp_path), Connection()
    campaigns._worker(connection, plan, 0)
    kept = [message for message in connection.said if message[0] == "failed" and message[2]]
    assert len(kept) == campaigns.ALIKE  # the others say the same
    state = campaigns.State.read(plan)
    state.finish(*connection.said[-1][1:])
    assert (state.programs, state.failed) == (8, 8) and "8 failures" in campaigns.summary(state)


def test_the_derived_gradients_of_the_fuzzed_are_kernels() -> None:
    """A smoke test of the folder itself: every file is a spec, and says which property it broke."""
    for path in FUZZED:
        text = path.read_text()
        assert text.startswith("# property: "), path
        made = kernel(text)
        if grad.differentiable(made):
            grad.forward_mode(made)


@pytest.mark.parametrize(("text", "exact"), [
    ("f(x: T[N]) -> y: i64[]\ny = sum[N](signbit(x / (1.5 + abs(x))))", False),  # fuzzing on a GPU: infinity over itself is -NaN on x86
    ("f(x: T[N]) -> y: i64[]\ny = sum[N](signbit(x))", True),
    ("f(x: T[N], z: T[N]) -> y: T[N]\ny = copysign(x, x + z)", False),
    ("f(g: T[N], x: f8e4m3fnuz[N]) -> y: T[N]\ny = copysign(g, x)", False),  # of which the sign's bit alone is NaN
    ("f(g: T[N], x: f8e4m3[N]) -> y: T[N]\ny = copysign(g, x)", True),
    ("f(x: T[N]) -> y: T[N]\ny = x + 1", True),
    ("f(x: T[N]) -> y: i64[]\ny = reach[N](abs(x), 2.5)", False),  # of sums that round, in an order of each target's own
    ("f(x: T[N]) -> y: T[]\ny = cutoff[N](x, abs(x), 2)", False),
    ("f(x: T[N], k: u8[N]) -> (y: T[], i: i64[])\ny = kth[N](x, 2)\ni = reach[N](k, 100)", True),
])  # fmt: skip
def test_what_is_one_float_on_every_target(text: str, exact: bool) -> None:
    assert properties.is_exact(check(syntax.parse(text))) is exact


class RoundedOnce:
    """Runs `y = x + 3 * u` as GPUs do for 16-bit results: by an fma, which is finite where the product alone overflows."""

    def _run(self, args: tuple, given: dict, out: object, target: str) -> torch.Tensor:
        return (given["x"].double() + 3 * given["u"].double()).to(given["x"].dtype)


@pytest.mark.parametrize("target", ["cuda", "triton"])
def test_what_a_target_rounds_once_is_not_held_to_two_roundings(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound has both; bit for bit results are held where every operator has its accurate form."""
    monkeypatch.setitem(TARGETS, target, TARGETS[target]._replace(device="cpu"))
    made = kernel("f(x: T[N], u: T[N]) -> y: T[N]\n\ny = x + 3 * u\n")
    f32, _, bf16, _ = range(4)
    assert [str(b["T"]) for b in made.bindings()][::2] == ["f32", "bf16"]
    assert properties.agrees(made, target, 15, [bf16 + 12], RoundedOnce()).cases == 1  # an infinity less a product that overflows
    with pytest.raises(Violation, match="of exact operators alone"):
        properties.agrees(made, target, 15, [f32, f32 + 4], RoundedOnce())


@pytest.mark.parametrize("text", [
    "few(x: T[M]) -> e: f8e4m3[]\n\ne = max[M](x)\n",
    "packed(x: T[N]) -> k: f4e2m1x2[N]\n\nk = u8(max(x, 0))\n",
    "places(y: u64[], x: T[D2]) -> u: T[]\n\nu = pick[D2](x, y)\n",
    "words(x: u64[N]) -> u: i64[N]\n\nu = philox(2, 9223372036854775807, x)\n",
    "another(x: T[N], w: int) -> z: T[N] where Ends = N + 1\n\nz = x + w\n",
], ids=lambda t: t.partition("(")[0])  # fmt: skip
def test_cases_are_judged_in_every_dtype_of_storage(text: str, built_quickly: None) -> None:
    """Dtypes in which torch has hardly an operator, and a number on which no size depends beside sizes that follow."""
    spec = kernel(text)
    assert properties.agrees(spec, "cpp", numbers=range(6)).cases == 6
    assert properties.in_place(spec, "cpp").cases == 1


@pytest.mark.parametrize("text", [
    "f(x: T[..., N], a: f4e2m1[..., N]) -> y: T[...]\ny = max[N](x * a)",
    "f(x: T[M, N], q: f4e2m1[M, N]) -> (y: T[], u: i64[M, N])\ny = sum[M, N](exp(q - max[M, N](q)) * x)\nu = cumsum[M](q[N = index[N] + 2 else 1] > 0.25)",
    "f(a: i4[M, N]) -> y: i64[M, N]\ny = a[N = 2 * index[N] + 1 else 7]",  # places along two dims, each by the other: parts alone have code
])  # fmt: skip
def test_packed_tensors_are_held(text: str, built_quickly: None) -> None:
    """On any target, also alone and among others, and where what is launched is another kernel than what is judged."""
    subject = fuzz.Subject(text, 5, 3, gradients=False)
    for target in ("torch", "cpp"):
        for name in ("agrees", "rows_alone"):
            what, said = fuzz.outcome(subject, name, target)
            assert what == "held", said
    what, said = fuzz.outcome(subject, "backward_agrees", "")
    assert what != "failed", said
