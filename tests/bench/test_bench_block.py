"""`kgen bench --block`: layers of GPT-2's shape trained by each way, their losses beside float64's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

torch = pytest.importorskip("torch", reason="torch is not installed")

from kgen.bench import block, gpt2  # noqa: E402
from kgen.cli import main  # noqa: E402
from kgen.errors import KgenError  # noqa: E402
from kgen.runtime.kernel import Kernel  # noqa: E402


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps, of kernels that torch evaluates: building them takes longer than the rest."""
    monkeypatch.setattr(Kernel, "_preferred", lambda *args: "torch")
    gpt2.kernels.cache_clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(block, "LOSSES", 4)
    monkeypatch.setattr(block, "TURNS", 1)
    monkeypatch.setattr(block, "STEPS", 3)


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["bench", *args])


def test_a_model_is_trained_by_eager_and_by_kgen_from_the_same_weights() -> None:
    done = run("--block", "1x2", "--against", "eager", "--json", "kept.json")
    assert done.exit_code == 0, done.output
    kept = json.loads(Path("kept.json").read_text())
    assert [(r["what"], r["layers"], r["batch"]) for r in kept] == [("kgen", 1, 2), ("eager", 1, 2)]
    for r in kept:
        assert len(r["losses"]) == 4 == len(r["exact"]) and r["ms"] > 0 and r["host"] == r["memory"] == 0
        assert 0 < max(block.distances(r["losses"], r["exact"])) < 1e-3
        assert r["exact"] == kept[0]["exact"] and r["losses"][3] < r["losses"][0], "it learned nothing"
    shown = run("--table", "kept.json").stdout
    assert shown.count("| 1 | 2 x 32 |") == 2 and "losses off float64" in shown


def test_gradients_are_as_close_to_float64_s_as_eager_ones() -> None:
    """Of the torch model under autocast and of kgen's, every parameter; in bf16 both."""
    torch.manual_seed(0)
    plain = gpt2.Model(gpt2.TINY._replace(layers=1))
    ((tokens, wanted),) = gpt2.batches(gpt2.TINY, 1, "cpu")
    ours = gpt2.FusedModel(gpt2.TINY._replace(layers=1), plain, "cpu")
    ours(tokens, wanted).backward()
    with torch.autocast("cpu", torch.bfloat16):
        plain(tokens, wanted).backward()
    eager = {name: p.grad.clone() for name, p in plain.named_parameters()}
    exact = plain.double()
    exact.zero_grad()
    exact(tokens, wanted).backward()
    for (name, p), q in zip(ours.named_parameters(), exact.parameters(), strict=True):
        scale = float(q.grad.abs().max())
        off, theirs = (float((g.double() - q.grad).abs().max()) for g in (p.grad, eager[name]))
        assert off <= 2 * theirs + 2**-8 * scale, name


def test_sizes_are_layers_and_a_batch() -> None:
    assert gpt2.sizes_of("12x8", "cuda") == gpt2.Sizes() and gpt2.sizes_of("1x3", "cpu") == gpt2.TINY._replace(layers=1, batch=3)
    for text in ("12", "0x8", "axb", "1x2x3", "1x99999"):
        with pytest.raises(KgenError, match="is no size"):
            gpt2.sizes_of(text, "cpu")
    assert "write --block 12x8" in run("gelu", "--block").output and "is no size" in run("--block", "7").output
    assert run("--block", "1x1", "--call").exit_code == 2 and "--kernelbench or --block" in run().output


def test_losses_that_are_another_model_s_are_refused() -> None:
    block.refuse({"eager": 1e-4, "kgen": 7e-4, "kgen compiled": 1e-4})
    with pytest.raises(KgenError, match="the losses of kgen are up to"):
        block.refuse({"eager": 1e-4, "kgen": 2e-3})
    with pytest.raises(KgenError):
        block.refuse({"kgen": float("inf")})
    assert block.distances([float("nan")], [1.0]) == [float("inf")]


@pytest.mark.slow
def test_it_compiles_whole_with_equal_losses() -> None:
    torch.manual_seed(0)
    sizes = gpt2.TINY._replace(layers=1)
    plain = gpt2.Model(sizes)
    data = list(gpt2.batches(sizes, 4, "cpu"))
    eager = block.Trained(lambda: block.of_kgen(plain, sizes, "cpu"), data, "cpu").losses
    torch._dynamo.reset()
    whole = lambda m, **k: torch_compile(m, backend="aot_eager", **k)  # noqa: E731
    torch_compile = torch.compile
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", whole)
        assert block.Trained(lambda: block.of_kgen(plain, sizes, "cpu", True), data, "cpu").losses == eager
