"""What the forward saves: the cheapest choice, small values before large ones, and results that keep their bits."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from kgen import grad, saving
from kgen.grad import _Backward
from kgen.runtime.evaluate import Evaluator
from kgen.types import Number
from tests.grad_cases import arguments, kernel, texts

TEXTS = texts()


def had(values, cut: set[int], read: set[int]) -> bool:
    """Whether every value in `read` can be computed from those in `cut` without computing a reduction that could be saved."""
    done: set[int] = set()
    for v in sorted(saving.above(values, read)):
        tensors = [a for a in values[v].args if not isinstance(values[a].type, Number)]
        anew = values[v].op != "param" and not (saving.reduces(values[v]) and saving.kept_dtype(values[v].type))
        if v in cut or anew and all(a in done for a in tensors):
            done.add(v)
    return read <= done


@pytest.mark.parametrize("name", TEXTS)
def test_no_other_choice_is_cheaper(name: str) -> None:
    k = kernel(TEXTS[name])
    floats = [r.name for r in k.results]
    tape = _Backward(k, tuple(floats), tuple(p.name for p in k.params))
    seeds = {r.name: tape.declare(f"d_{r.name}", r.dtype, r.dims) for r in k.results if r.dtype not in ("i64", "i8", "bool", "i32")}
    read = tape.read(tape.gradients(seeds).values())
    reached = saving.above(tape.values, read)
    price = saving.costs(tape.values, reached, tape.stored())
    params, saved = saving.choose(tape.values, read, tape.stored())
    assert had(tape.values, params | saved, read)
    chosen = sum(price[v] for v in params | saved)
    useful = [v for v in reached if price[v] < chosen]
    if len(useful) > 16:
        pytest.skip("too many choices to try them all")
    for size in range(len(useful) + 1):
        for cut in combinations(useful, size):
            if sum(price[v] for v in cut) < chosen:
                assert not had(tape.values, set(cut), read)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layernorm", "rmsnorm", "add_rmsnorm", "cross_entropy", "groupnorm", "variance"])
def test_norms_and_losses_save_a_value_a_row(name: str) -> None:
    k = kernel(TEXTS[name])
    made = grad.backward(k)
    widest = max(len(p.dims or ()) for p in k.params)
    assert made.saved and all(len(r.dims) < widest for r in made.forward.results if r.name in made.saved)


def test_of_many_tensors_their_sum_is_saved() -> None:
    """Four 16-bit tensors are 8 bytes to read; their f32 sum is 8 to write and read.  A fifth tips the scales."""
    names = "abcde"
    for count, wanted in ((4, 0), (5, 1)):
        params = ", ".join(f"{n}: T[...]" for n in names[:count])
        k = kernel(f"f({params}) -> y: T[...]\n\ns = {' + '.join(names[:count])}\ny = silu(s)")
        assert len(grad.backward(k).saved) == wanted
    made = grad.backward(k)
    assert made.saved == ("s",) and made.takes == () and made.forward.results[-1].dtype == "T32"


def test_a_result_in_the_dtype_computed_in_is_not_saved_twice() -> None:
    made = grad.backward(kernel("f(x: T[..., N]) -> y: T32[...]\n\ny = sqrt(sum[N](x^2))"))
    assert made.saved == ("y",) and made.forward.name == "f"
    rounded = grad.backward(kernel("f(x: T[..., N]) -> y: T[...]\n\ny = sqrt(sum[N](x^2))"))
    assert rounded.saved == ("y_kept",)


def test_saving_changes_no_result() -> None:
    """Of none of the kernels that save; as many tests would derive every backward once more to know their names."""
    saving = {name: made for name, text in TEXTS.items() if (made := grad.backward(kernel(text))).saved}
    assert len(saving) > 40
    for name, made in saving.items():
        k = kernel(TEXTS[name])
        given = arguments(k, torch.bfloat16)
        for a, b in zip(Evaluator(k, given).run(), Evaluator(made.forward, given).run(), strict=False):
            assert torch.equal(a.nan_to_num(), b.nan_to_num()), name


def test_a_scan_whose_greatest_value_is_taken_is_saved() -> None:
    """Its gradient goes where elements equal that, and a scan that is computed anew may be joined in another order."""
    assert grad.backward(kernel("f(x: f32[..., N]) -> y: f32[...]\ny = max[N](cumsum[N](x))")).saved == ("cumsum_row", "y")
    assert grad.backward(kernel("f(x: f32[..., N]) -> y: f32[...]\ny = max[N](2 * x)")).saved == ("y",)


def test_what_is_saved_lies_as_what_it_is_made_of() -> None:
    """Whatever order an expression gives its dims."""
    made = grad.backward(kernel("f(x: T[B, H, Q, K]) -> y: T[B, H, Q, K]\n\nz = index[Q] + x\ny = exp(z - max[K](z)) / sum[K](exp(z - max[K](z)))"))
    assert made.saved and {r.dims for r in made.forward.results if r.name in made.saved} == {("B", "H", "Q")}
