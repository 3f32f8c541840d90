"""`kgen bench --foreach`: a model's parameters in one call, beside torch's ways, results compared first."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.bench import lists, timing  # noqa: E402
from kgen.cli import main  # noqa: E402

pytestmark = pytest.mark.usefixtures("built_quickly_by_default")


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(timing, "SECONDS", 0.01)


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["bench", *args])


def test_the_shapes_are_gpt2_small_s() -> None:
    shapes = list(lists.gpt2_small())
    assert len(shapes) == 148 and sum(torch.Size(s).numel() for s in shapes) == 124_439_808


def test_a_step_is_timed_beside_torch_s_and_kept() -> None:
    done = run("adamw", "lerp_ema", "--foreach", "--scale", "1/4096", "--json", "kept.json")
    assert done.exit_code == 0, done.output
    kept = json.loads(Path("kept.json").read_text())
    assert [(r["kernel"], r["what"]) for r in kept] == [
        ("adamw", "cpp"), ("adamw", "cpp each alone"), ("adamw", "torch._fused_adamw_"), ("adamw", "AdamW(fused)"), ("adamw", "AdamW(foreach)"),
        ("lerp_ema", "cpp"), ("lerp_ema", "cpp each alone"), ("lerp_ema", "torch._foreach_lerp_"),
    ]  # fmt: skip
    assert all(r["tensors"] == 148 and r["ms"] > 0 and r["copy"] > 0 and r["host"] == 0 for r in kept)
    assert {r["bytes"] for r in kept if r["kernel"] == "adamw"} == {28 * kept[0]["elements"]}  # reads four, writes three
    assert "AdamW(foreach)" in done.stdout
    shown = run("--table", "kept.json").stdout
    assert "| kernel | tensors |" in shown and shown.count("| adamw f32 | 148 |") == 5 and "torch._foreach_lerp_" in shown


def test_without_peers_and_of_a_kernel_that_reduces() -> None:
    done = run("softmax", "adamw", "--foreach", "--scale", "1/65536", "--row", "16", "--against", "none", "--json", "kept.json")
    assert done.exit_code == 0, done.output
    assert {r["what"] for r in json.loads(Path("kept.json").read_text())} == {"cpp", "cpp each alone"}
    assert run("adamw", "--foreach", "--call").exit_code == 2


def test_a_peer_that_computes_something_else_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(x: list[torch.Tensor]) -> object:
        return lambda: [3 * t for t in x]

    def failing(x: list[torch.Tensor]) -> object:
        raise RuntimeError("not here")

    monkeypatch.setitem(
        lists.PEERS, "gelu", {"wrong": wrong, "failing": failing, "gelu": lambda x: lambda: [torch.nn.functional.gelu(t) for t in x]}
    )
    rows, left_out = lists.time_lists(kgen.load("gelu").kernel, ["cpp"], True, "f32", Fraction(1, 65536), "cpu", 64)
    assert [r.what for r in rows] == ["cpp", "cpp each alone", "gelu"]
    assert "its y is another" in left_out["wrong"] and left_out["failing"] == "RuntimeError: not here"


@pytest.mark.gpu
def test_a_step_is_timed_on_a_gpu() -> None:
    done = run("adamw", "--foreach", "--json", "kept.json")
    assert done.exit_code == 0, done.output
    kept = {r["what"]: r for r in json.loads(Path("kept.json").read_text())}
    assert {"cuda", "cuda each alone", "triton", "torch._fused_adamw_", "AdamW(fused)", "AdamW(foreach)"} <= kept.keys()
    assert all(r["host"] > 0 for r in kept.values())
