"""The library's specs: each is the torch function of its line, its gradients are autograd's, and what it builds keeps to its bound."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kgen
from kgen import grad, library, syntax, typeset
from kgen.bench import libraries
from kgen.bench.drawn import BY_TORCH
from kgen.bench.library import ACTIVATIONS, LINES, OPTIMISERS, TIMED
from kgen.resources import OTHERS, bundled, families, resource
from kgen.testing import checks
from kgen.testing.cases import Limits
from tests.specs.library import arguments

FOLDERS = {path.stem: path for paths in families().values() for path in paths if path.parent != resource("specs")}
STEPPING = tuple(OPTIMISERS)  # they write in place, which has no derivative
DIFFERENTIABLE = [name for name in FOLDERS if name not in STEPPING]


def tensors(results: Any) -> tuple[torch.Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def wanted(name: str, given: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """What the torch function of a spec's line gives of the spec's arguments."""
    return tensors(LINES[name].torch(**given))


def agree(name: str, got: Any, want: Any) -> None:
    for k, (y, other) in enumerate(zip(tensors(got), tensors(want), strict=True)):
        assert y.shape == other.shape
        if y.dtype == torch.float4_e2m1fn_x2:
            y, other = y.view(torch.uint8), other.view(torch.uint8)
        if y.dtype.itemsize == 1 and y.dtype.is_floating_point:
            assert y.dtype == other.dtype
            y, other = y.double(), other.double()
        torch.testing.assert_close(y, other.to(y.dtype), rtol=LINES[name].near, atol=LINES[name].near, msg=lambda m, k=k: f"{name}, {k}: {m}")


def test_every_spec_of_the_library_has_its_line() -> None:
    assert set(LINES) == set(FOLDERS) and set(TIMED) == set(FOLDERS) - set(OPTIMISERS)


def test_every_line_is_timed_as_torchs_function() -> None:
    """`kgen bench` takes a function whose parameters are the spec's."""
    assert [name for name in TIMED if libraries.lacks(kgen.load(name).kernel, "torch")] == []


def test_names_are_the_specs_own_in_all_families() -> None:
    names = [path.stem for paths in families().values() for path in paths]
    assert len(names) == len(set(names)) and all(bundled(name) is not None for name in names)
    assert all(path.is_file() for paths in families().values() for path in paths), "specs/FAMILIES names what is not there"
    assert bundled("norms/polynorm") == bundled("polynorm") == FOLDERS["polynorm"] and bundled("kernelbench/19_relu") and not bundled("19_relu")
    assert bundled("norms/softmax") is None and bundled("FAMILIES") is None and [*families()][-1] in (OTHERS, "random")


def test_every_spec_is_short_well_set_and_says_its_source() -> None:
    for name, path in FOLDERS.items():
        text = path.read_text()
        file = syntax.parse(text, name)
        assert typeset.format_file(file) == text and len(text.splitlines()) <= 15, name
        assert 1 <= len(file.doc().splitlines()) <= 3 and "(" in file.doc(), name
        found = library.entry(path)
        assert found.signature.startswith(f"{name}(") and 10 < len(found.summary) < 160 and found.lines == len(text.splitlines()), found


@pytest.mark.parametrize("name", FOLDERS)
def test_a_spec_is_what_its_line_says(name: str) -> None:
    """In float64, read by the evaluator; of what writes in place, the parameters afterwards."""
    kernel = kgen.load(name)
    given = arguments(name, kernel)
    want = wanted(name, {p: x.clone() if isinstance(x, torch.Tensor) else x for p, x in given.items()})
    fresh = iter(tensors(kernel(**given, target="torch")))
    agree(name, tuple(given[r.state] if r.state else next(fresh) for r in kernel.kernel.results), want)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in ACTIVATIONS else ()) for n in DIFFERENTIABLE])
def test_its_gradients_are_autograds_of_the_same(name: str) -> None:
    """Those of activations, an operator or two each, are left to `-m slow`: tests/grad has the operators."""
    kernel = kgen.load(name)
    if not grad.differentiable(kernel.kernel):  # what counts, or names places, has none
        assert name in BY_TORCH or not any(r.dtype in kernel.kernel.variables or r.dtype in ("T32", "f32") for r in kernel.kernel.results)
        return
    given = arguments(name, kernel, seed=1)
    leaves = {p: x.requires_grad_() for p, x in given.items() if isinstance(x, torch.Tensor) and x.is_floating_point() and p not in LINES[name].fixed}
    found = []
    for results in (tensors(kernel(**given, target="torch")), wanted(name, given)):
        torch.manual_seed(2)
        summed = sum((y * torch.randn(y.shape, dtype=torch.float64)).sum() for y in results if y.requires_grad and y.dtype.itemsize > 1)
        assert isinstance(summed, torch.Tensor)
        gradients = torch.autograd.grad(summed, list(leaves.values()), allow_unused=True)
        found.append(tuple(torch.zeros_like(x) if g is None else g for x, g in zip(leaves.values(), gradients)))
    agree(name, *found)


def kept(name: str, target: str, examples: int, limits: Limits | None = None, backward: bool = True) -> None:
    """Random cases of a spec, and of its backward, stay within their derived bounds on a target."""
    kernel = kgen.load(name).kernel
    reports = [checks.check(kernel, target, examples, limits=limits)]
    if backward and name in DIFFERENTIABLE and grad.differentiable(kernel):
        reports.append(checks.check_backward(kernel, target, examples, limits=limits))
    for report in reports:
        assert not report.failures, report.failures[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_what_is_built_for_the_cpu_keeps_to_its_bound(name: str) -> None:
    kept(name, "cpp", 30)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize(("name", "target"), [
    pytest.param(name, target, marks=pytest.mark.slow if (k + j) % 2 else ()) for k, name in enumerate(FOLDERS) for j, target in enumerate(("cuda", "triton"))
])  # fmt: skip
def test_what_is_built_for_a_gpu_keeps_to_its_bound(name: str, target: str) -> None:
    """In one dtype, forward, on one target by turns; on the other one it is slow."""
    dtype = ("bf16", "f32")[len(name) % 2]
    kept(name, target, 2, Limits({v: dtype for v in kgen.load(name).kernel.variables}), backward=False)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize(("name", "target"), [
    pytest.param(name, target, marks=pytest.mark.slow if (k + 4 * j) % 8 else ()) for k, name in enumerate(DIFFERENTIABLE) for j, target in enumerate(("cuda", "triton"))
])  # fmt: skip
def test_its_gradients_built_for_a_gpu_keep_to_their_bound(name: str, target: str) -> None:
    """In one dtype; an eighth of them on each target, the rest is slow."""
    kernel = kgen.load(name).kernel
    if not grad.differentiable(kernel):
        return
    report = checks.check_backward(kernel, target, 2, limits=Limits({v: ("f32", "bf16")[len(name) % 2] for v in kernel.variables}))
    assert not report.failures, report.failures[0]
