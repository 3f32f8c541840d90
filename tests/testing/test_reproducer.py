"""A reproducer stands alone: run as it is printed, it fails where the kernel is wrong and passes where it is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import kgen
from kgen.runtime import launchers
from kgen.testing import CheckFailed, check, checks
from kgen.testing.cases import Draw
from kgen.testing.reproducer import reproducer, tensor

SEVERAL = 'several(x: T[..., N], w: f32[N], k: i32[...], s: float = 0.5) -> (y: T[..., N], z: f32[...])\ny = x * w * s\nz = f32(k) + sum[N](w)\n'
STATE = "state(p: T[...], target: T[...], lr: float) -> p': T[...]\np' = p - lr * target\n"


def program(text: str) -> str:
    """The Python at the end of a message."""
    return text[text.index("import torch, kgen") :]


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The target torch doubles the last element of each result that has more than three."""
    honest = launchers.Torch.__call__

    def wrong(self: Any, call: Any) -> None:
        honest(self, call)
        for t in call.results.values():
            if t.numel() > 3 and t.dim():
                t[(-1,) * t.dim()] = t[(-1,) * t.dim()] * 2 + 1

    monkeypatch.setattr(launchers.Torch, "__call__", wrong)
    return monkeypatch


@pytest.mark.parametrize("text", [SEVERAL, STATE], ids=["several results", "in place, with a parameter named target"])
def test_what_is_printed_fails_as_the_check_did_and_passes_on_a_right_kernel(
    text: str, planted: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(CheckFailed, match="made small, as Python") as error:
        check(text, target="torch", examples=30, shrink=3.0)
    printed = program(str(error.value))
    assert len(printed.splitlines()) < 25 and max(len(line) for line in printed.splitlines()) < 160, printed
    with pytest.raises(AssertionError):
        exec(printed, {})
    assert "is to be" in capsys.readouterr().out
    planted.undo()
    exec(printed, {})


def test_the_command_line_prints_the_table_and_the_program_and_exits_with_1(planted: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from kgen.cli import main

    (tmp_path / "several.k").write_text(SEVERAL)
    done = CliRunner().invoke(main, ["check", str(tmp_path / "several.k"), "--target", "torch", "--examples", "12"])
    assert done.exit_code == 1
    heads, row = done.stdout.splitlines()
    assert heads.split()[-1] == "bound" and row.startswith("FAIL  several  torch")
    assert done.stderr.startswith("error: several on torch, case ")
    with pytest.raises(AssertionError):
        exec(program(done.stderr), {})


def test_a_backward_is_reproduced_as_training_runs_it(planted: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckFailed) as error:
        check("softmax", target="torch", examples=20, backward=True, shrink=3.0)
    printed = program(str(error.value))
    assert "Saving(kgen.loads(" in printed and "dy=dy_" in printed
    with pytest.raises(AssertionError):
        exec(printed, {})
    planted.undo()
    exec(printed, {})


def test_what_differs_from_a_function_is_reproduced_without_it() -> None:
    with pytest.raises(CheckFailed) as error:
        check('quoted(x: T[...]) -> y: T[...]\n# """ and \\n\ny = x * 2', lambda x: x + x + 1, target="torch", examples=4, shrink=1.0)
    with pytest.raises(AssertionError):
        exec(program(str(error.value)), {})


def test_a_call_that_raises_and_one_that_should_are_reproduced(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "top(x: T[..., N]) -> y: T[...]\ny = max[N](x)"
    kernel = kgen.loads(text).kernel
    empty = {"sizes": {"N": 0}}

    def refused(self: Any, call: Any) -> None:
        raise kgen.KgenError("top: no luck")

    with monkeypatch.context() as patch:
        patch.setattr(launchers.Torch, "__call__", refused)
        report = checks.check(kernel, "torch", 3)
        printed = reproducer(report.first, 1.0)  # type: ignore[arg-type]
        with pytest.raises(kgen.KgenError, match="no luck"):
            exec(printed, {})
    exec(printed, {})
    with monkeypatch.context() as patch:
        patch.setattr("kgen.runtime.arguments.refuse_empty", lambda kernel, call: None)
        patch.setattr(launchers.Torch, "__call__", lambda self, call: None)
        with pytest.raises(CheckFailed, match="no error, but top: max") as error:
            check(text, target="torch", examples=8, shrink=1.0, **empty)  # type: ignore[arg-type]
        with pytest.raises(AssertionError, match="it is to say: top: max"):
            exec(program(str(error.value)), {})


WIDE = "wide(x: T[..., M, N], w: U[N], n: i32[...], m: bool[N], t: i64[...], a: T[]) -> y: T[..., M, N]\ny = x * w + f32(n) + a if m else pick[M](x, t)"


def test_tensors_are_written_with_their_values_strides_and_offsets() -> None:
    """Drawn tensors, from their text, are what they were: bit for bit, and laid out alike from where their memory begins."""
    from math import inf, nan

    kernel, lengths = kgen.loads(WIDE).kernel, []
    for number in range(12):
        for x in Draw(kernel, 1, number).arguments().values():
            text = tensor(x)
            y = eval(text, {"torch": torch, "nan": nan, "inf": inf})
            assert (y.dtype, y.shape) == (x.dtype, x.shape)
            if x.numel():
                assert y.stride() == x.stride() or x.is_contiguous() and y.is_contiguous()
                assert y.storage_offset() == x.storage_offset()
            bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(x.element_size()) if x.is_floating_point() else None
            ours, theirs = (t.contiguous().view(bits) if bits and t.dim() else t for t in (y, x))
            same = ours == theirs if bits is None or not x.dim() else (ours == theirs) | x.isnan() & y.isnan()
            assert bool(same.all()) or bool((x.isnan() & y.isnan()).all())
            lengths.append(len(text))
    assert max(lengths) < 600_000


def test_tensors_on_a_gpu_are_sent_there_and_equal_elements_are_not_repeated() -> None:
    assert tensor(torch.tensor([1.0, 2.0]), "cuda") == "torch.tensor([1.0, 2.0], dtype=torch.float32).cuda()"
    assert tensor(torch.zeros(4, 25)) == "torch.full((100,), 0.0, dtype=torch.float32).view(4, 25)"
    x = torch.zeros(40)
    x[33] = float("nan")
    assert tensor(x[1:]) == "torch.tensor([0.0] * 33 + [nan] + [0.0] * 6, dtype=torch.float32).as_strided((39,), (1,), 1)"
