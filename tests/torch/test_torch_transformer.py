"""A two-layer transformer of kgen's kernels: trained, compiled and exported beside the same of PyTorch's functions."""

from __future__ import annotations

import pytest
import torch

from tests.transformer import batches, models, of_kgen, of_torch, train

pytestmark = pytest.mark.usefixtures("built_quickly")


@pytest.mark.slow
def test_two_hundred_steps_of_training_stay_as_close_to_float64_as_eager_ones() -> None:
    """Rounding differences grow as training goes on, in either: both are held to the same model trained in float64."""
    ours, theirs = models()
    _, exact = models(torch.float64)
    losses, eager, wanted = train(ours, of_kgen(), 200), train(theirs, of_torch(), 200), train(exact, of_torch(), 200)
    assert wanted[-1] < 0.6 * wanted[0], "it learned nothing"
    rounding = max(abs(a - b) / b for a, b in zip(eager, wanted, strict=True))
    apart = max(abs(a - b) / b for a, b in zip(losses, wanted, strict=True))
    assert apart <= 2 * rounding, f"{apart} from float64, eager {rounding}"


def gradients(model, compiled, tokens: torch.Tensor, wanted: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad(set_to_none=True)
    loss = compiled(tokens, wanted)
    loss.mean().backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def test_a_steps_gradients_are_as_close_to_float64s_as_eager_ones() -> None:
    ours, theirs = models()
    _, exact = models(torch.float64)
    ((tokens, wanted),) = batches(1)
    found, eager, true = (gradients(model, model, tokens, wanted) for model in (ours, theirs, exact))
    for a, b, c in zip(found, eager, true, strict=True):
        scale = float(c.abs().max())
        assert float((a - c).abs().max()) <= 2 * float((b - c).abs().max()) + 2**-22 * scale


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_the_transformer_compiles_whole_with_equal_results(backend: str) -> None:
    model, _ = models()
    ((tokens, wanted),) = batches(1)
    eager = gradients(model, model, tokens, wanted)
    torch._dynamo.reset()
    compiled = gradients(model, torch.compile(model, fullgraph=True, backend=backend), tokens, wanted)
    for a, b in zip(eager, compiled, strict=True):
        if backend == "aot_eager":
            assert torch.equal(a, b)
        else:  # inductor sums in another order
            torch.testing.assert_close(a, b)


def test_the_transformer_is_exported_with_equal_results() -> None:
    model, _ = models()
    ((tokens, wanted),) = batches(1)
    program = torch.export.export(model, (tokens, wanted))
    called = {str(n.target) for n in program.graph.nodes if str(n.target).startswith("kgen.")}
    assert {name.split(".")[1].rsplit("_", 1)[0] for name in called} == {"layernorm", "swiglu", "softmax", "cross_entropy"}
    assert torch.equal(program.module()(tokens, wanted), model(tokens, wanted))
