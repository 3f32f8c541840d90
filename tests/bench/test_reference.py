"""What `kgen bench` holds results against: the formula by pieces, derived bounds where roundings choose, and torch's functions."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.bench import libraries, library, reference
from kgen.errors import KgenError
from kgen.runtime.evaluate import Evaluator
from kgen.runtime.samples import arguments


def checked(spec: str) -> kgen.check.Kernel:
    return kgen.load(spec).kernel


@pytest.mark.parametrize(
    ("spec", "dims"),
    [("softmax", ["..."]), ("gelu", ["..."]), ("mse", []), ("batchnorm_stats", ["C"]), ("causal_softmax", ["..."]),
     ("groupnorm", ["B", "G"]), ("linear_recurrence", ["...", "C"]), ("top_p_mask", ["..."]), ("swiglu_group_int8", ["M"]), ("sum_of_squares_cols", ["N"]), ("scale_shift_chain", ["...", "N"]), ("cross_entropy", ["..."])],
)  # fmt: skip
def test_a_formula_is_cut_along_dims_that_nothing_crosses(spec: str, dims: list[str]) -> None:
    assert reference.cuttable(checked(spec)) == dims


@pytest.mark.parametrize(
    "spec", ["softmax", "layernorm", "cross_entropy", "groupnorm", "sum_of_squares_cols", "adamw", "dyt", "kernelbench/33_batch_norm"]
)
def test_pieces_are_the_whole(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = checked(spec)
    given = arguments(kernel, "f32", 3000, "cpu", 50)
    whole = Evaluator(kernel, given).run()
    monkeypatch.setattr(reference, "PIECE", 16 * 700)
    pieces = reference.Reference(kernel, given)
    assert len(pieces.pieces) > 3
    pieces.refuse("cpp", list(whole))
    for k, r in enumerate(whole):
        wrong = [x.clone() for x in whole]
        wrong[k].view(-1)[r.numel() // 2] += 1
        with pytest.raises(KgenError, match=f"differ in {kernel.results[k].name}"):
            pieces.refuse("cpp", wrong)
    assert pieces.bytes == sum(r.numel() * r.element_size() for r in whole)


@pytest.mark.parametrize("spec", ["mxfp8", "nvfp4", "nvfp4_dequantize", "int4_dequantize"])
def test_axes_of_several_dims_are_cut_and_packed_values_compared(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of what a header splits have the length that was asked for, and bytes of two values are no number."""
    kernel = checked(spec)
    given = library.holding(spec, arguments(kernel, "bf16", 1 << 13, "cpu", 512))
    if spec in ("mxfp8", "nvfp4"):
        assert given["x"].shape[-1] == {"mxfp8": 2048, "nvfp4": 512}[spec]  # along G nothing is reduced, but for nvfp4's scale
    monkeypatch.setattr(reference, "PIECE", 16 * 1024)
    pieces = reference.Reference(kernel, given)
    assert len(pieces.pieces) == (len(given["x"]) if spec == "mxfp8" else 1)
    whole = list(Evaluator(kernel, given).run())
    pieces.refuse("cpp", whole)
    assert pieces.alike(libraries.prepared(kernel, "torch", given)()) == ""
    other = whole[0].clone()
    signed = other.view(torch.uint8).view(-1)[other.element_size() - 1 :: other.element_size()]
    signed[reference._values(other).abs().view(len(signed), -1).amax(-1).argmax()] ^= 0x88
    with pytest.raises(KgenError, match="differ in"):
        pieces.refuse("cpp", [other, *whole[1:]])


def test_of_what_is_large_samples_reach_from_the_first_row_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "PIECE", 1600)
    monkeypatch.setattr(reference, "COMPARED", 16000)
    kernel = checked("softmax")
    given = {"x": torch.randn(5000, 10)}
    pieces = reference.Reference(kernel, given)
    places = [(start, length) for _, start, length, _ in pieces.pieces]
    assert len(places) == reference.SAMPLES and places[0] == (0, 10) and places[-1] == (4990, 10)
    y = torch.softmax(given["x"], -1)
    pieces.refuse("cpp", [y])
    y[-1, -1] += 1e-3
    with pytest.raises(KgenError):
        pieces.refuse("cpp", [y])


def test_small_results_are_compared_by_their_own_size() -> None:
    """Softmax over many elements is small everywhere: an error of some thousandths of it is one."""
    kernel = checked("softmax")
    x = torch.randn(2, 4096)
    pieces = reference.Reference(kernel, {"x": x})
    pieces.refuse("cpp", [torch.softmax(x, -1)])
    with pytest.raises(KgenError):
        pieces.refuse("cpp", [torch.softmax(x, -1) * 1.001])


def test_what_roundings_choose_is_held_to_its_derived_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another answer beside a tie of the exact value is none that is wrong; elsewhere it is."""
    monkeypatch.setattr(reference, "PIECE", 16 * 64)
    kernel = kgen.loads("thirds(x: f32[..., N]) -> q: i8[..., N]\n\nq = i8(round(x / 3 * 3))").kernel
    x = torch.randn(64, 16) * 0.3
    x[5, :4] = torch.tensor([2.5, 0.5, 1.5, 3.5])
    pieces = reference.Reference(kernel, {"x": x})
    q = torch.round(x / 3 * 3).to(torch.int8)
    assert len(pieces.pieces) == 16
    q[5, :4] = torch.tensor([3, 1, 1, 3])
    pieces.refuse("cpp", [q])
    q[7, 3] += 1
    with pytest.raises(KgenError, match="differ in q"):
        pieces.refuse("cpp", [q])


@pytest.mark.parametrize(
    "spec", ["swiglu_group_int8", "linear_recurrence", "rg_lru", "selective_scan", "volume_weights", "top_p_mask", "draw_token", "typical_mask"]
)
def test_torchs_function_is_the_formula_where_it_scans_chooses_or_draws(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On arguments that `kgen bench` draws, in 16 bits and by pieces, whose results are finite but for what a mask takes away."""
    monkeypatch.setattr(reference, "PIECE", 16 * 2048)
    kernel = checked(spec)
    given = library.holding(spec, arguments(kernel, "bf16", 1 << 14, "cpu", 128))
    pieces = reference.Reference(kernel, given)
    assert len(pieces.pieces) > 1
    results = libraries.prepared(kernel, "torch", given)()
    assert pieces.alike(results) == ""
    found = results if isinstance(results, tuple) else (results,)
    assert all(not bool((y.isnan() | (y == torch.inf)).any()) for y in found)
    assert pieces.alike(tuple(y.flip(0) for y in found)) != ""
