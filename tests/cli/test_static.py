"""`kgen compile --static`: files for known dims and dtypes, each built alone and held to the exact result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from kgen.cli import main
from tests import static_files as files

#: Specs, their dims at two sizes: whole vectors, and lengths that are none.
SPECS: dict[str, tuple[dict[str, int], ...]] = {
    "softmax": ({"N": 256}, {"N": 1001}),
    "layernorm": ({"N": 512}, {"N": 77}),
    "rmsnorm": ({"N": 4096}, {"N": 33}),
    "cross_entropy": ({"V": 1024}, {"V": 130}),
    "gelu": ({}, {}),
    "adamw": ({}, {}),
}
#: What the specs above have none of: several rows of dims, positions, integers, rows that lie side by side, long rows, state.
MORE: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("argmax", "f32", {"N": 300}),
    ("groupnorm", "f16", {"B": 2, "G": 3, "C": 4, "S": 5}),
    ("batchnorm_stats", "f32", {"B": 3, "C": 5, "S": 16}),
    ("sum_of_squares_cols", "f16", {"M": 700, "N": 70}),
    ("row_absmax_int8", "bf16", {"N": 512}),
    ("logsumexp", "f64", {"N": 9000}),
    ("softmax", "f32", {"N": 70_000}),
    ("causal_softmax", "bf16", {"S": 12, "K": 40}),
    ("bias_gelu", "f32", {"N": 40}),
    ("swiglu", "bf16", {"N": 64}),
    ("forth", "f32", {"N": 777}),
    ("back", "bf16", {"N": 640}),
    ("upright", "f64", {"M": 300, "N": 7}),
)


def sized(spec: str, sizes: dict[str, int]) -> dict[str, int]:
    """Sizes by the dims that a spec has."""
    from kgen.backends.static import named_dims

    dims = named_dims(files.kernels(spec, False)[0])
    return dict(zip(dims, sizes.values(), strict=False)) if set(dims) != set(sizes) else sizes


def cases() -> list[Any]:
    """Backwards, with the forwards that they need, in two dtypes by turns; the rest slow."""
    made = []
    for k, (n, both) in enumerate(SPECS.items()):
        for j, (sizes, d) in enumerate(zip(both, ("bf16", "f32"), strict=True)):
            for b in (False, True)[: 1 if n == "adamw" else 2]:
                made.append(pytest.param(n, d, sizes, b, marks=() if j == k % 2 and (b or n == "adamw") else pytest.mark.slow))
    return made + [(n, d, sizes, False) for n, d, sizes in MORE]


@pytest.mark.parametrize(("name", "dtype", "sizes", "backward"), cases())
def test_cpp_files_stand_alone(name: str, dtype: str, sizes: dict[str, int], backward: bool, tmp_path: Path) -> None:
    """Built by the line in their heads, without kgen, and called by ctypes; at -O3 as it says those of SPECS."""
    sizes = sized(name, sizes)
    lead = files.LEAD if name != "gelu" else (3, 1234)
    written = files.compiled(name, "cpp", tmp_path, dtype, sizes, backward)
    for kernel in files.kernels(name, backward):
        kernel = files.concrete(kernel, dtype)
        library = files.built(written[kernel.name], "c++", quickly=name not in SPECS)
        given = files.arguments(kernel, sizes, lead)
        before = {n: x.clone() if isinstance(x, torch.Tensor) else x for n, x in given.items()}
        made = files.results(kernel, given, sizes, lead)
        files.called_as_c(library[kernel.name], kernel, given, made, files.count_of(kernel, lead))
        files.holds(kernel, before, made, "cpp")


#: The most lines of a file for one dtype.
LINES = {("softmax", "cuda"): 110, ("softmax", "triton"): 80, ("softmax", "cpp"): 90, ("gelu", "cuda"): 65, ("gelu", "triton"): 65, ("gelu", "cpp"): 65}


@pytest.mark.parametrize("dtype", ("bf16", "f32"))
@pytest.mark.parametrize(("name", "target"), LINES)
def test_files_are_short(name: str, target: str, dtype: str, tmp_path: Path) -> None:
    path = files.compiled(name, target, tmp_path, dtype, {"N": 4096} if name == "softmax" else {})[name]
    text = path.read_text()
    assert len(text.splitlines()) <= LINES[name, target]
    assert "dtype == tl." not in text
    assert "template <" not in text or target == "cpp"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_sums_over_no_rows_are_results(tmp_path: Path) -> None:
    sizes = {"N": 40}
    path = files.compiled("layernorm", "cpp", tmp_path, "f32", sizes, True)["layernorm_backward"]
    kernel = files.concrete(files.kernels("layernorm", True)[-1], "f32")
    given = files.arguments(kernel, sizes, (0,))
    made = {n: x.fill_(7) for n, x in files.results(kernel, given, sizes, (0,)).items()}
    files.called_as_c(files.built(path, "c++")[kernel.name], kernel, given, made, 0)
    assert not made["dw"].any() and not made["db"].any() and made["dw"].numel() == 40


WRONG = {
    "softmax --static": "--static lacks the size of N",
    "softmax --static M=4": "softmax has no dim M",
    "softmax --static N=4,M=4": "softmax has no dim M",
    "softmax --static N=0": "N = 0 is no size of a dim",
    "softmax --static N=-3": "N = -3 is no size of a dim",
    "softmax --static N=1073741825": "more than 1,073,741,824 elements",
    "gelu --static N=4": "gelu has no dim N",
    "groupnorm --static B=2,S=3": "lacks the size of G, C",
    "mse --static --target cuda": "reduces all elements to one",
    "mse --static --target triton": "reduces all elements to one",
    "median --static N=64": "it searches along a row",
    "softmax --static N=900000000 --target cuda": "longer than its order of sums bounds",
    "softmax --static N=900000000 --target triton": "longer than its order of sums bounds",
}


@pytest.mark.parametrize("line", WRONG)
def test_what_cannot_be_is_said(line: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["compile", *line.split(), "--dtype", "f32", "-o", str(tmp_path / "out")])
    assert done.exit_code == 1 and WRONG[line] in done.output and "help:" in done.output, done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("dtypes", "said"), [((), "no dtype"), (("--dtype", "bf16,f32"), "2 dtypes")])
def test_it_takes_one_dtype(dtypes: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(main, ["compile", "softmax", "--static", "N=64", *dtypes, "-o", "-", "--target", "cpp"])
    assert done.exit_code == 1 and said in done.output and "--dtype T=bf16" in done.output


@pytest.mark.parametrize("line", ["softmax --static N", "softmax --static N=a", "softmax --static N=1,N=2", "--static softmax gelu", "softmax --static N=4 --build"])
def test_a_wrong_command_line_is_one(line: str) -> None:
    done = CliRunner().invoke(main, ["compile", *line.split(), "--dtype", "f32"])
    assert done.exit_code == 2, done.output


def test_a_spec_without_variables_needs_no_dtype(tmp_path: Path) -> None:
    spec = "double(x: f32[..., N]) -> y: f32[..., N]\n\ny = x * N\n"
    assert "6.0f" in files.compiled(spec, "cpp", tmp_path, "", {"N": 6})["double"].read_text()


def test_a_name_of_the_frame_s_is_the_writer_s_own(tmp_path: Path) -> None:
    """What the frame calls `row`, `i` and `LANES` may be a parameter, a value and a dim."""
    spec = "scaled(row: T[..., LANES], k: float) -> lane: T[..., LANES]\n\ni = row * k\nlane = i / sum[LANES](i * i)\n"
    sizes = {"LANES": 100}
    for target in ("cpp", "cuda", "triton"):
        (tmp_path / target).mkdir()
        files.compiled(spec, target, tmp_path / target, "f32", sizes)
    kernel = files.concrete(files.kernels(spec, False)[0], "f32")
    library = files.built(tmp_path / "cpp" / "scaled" / "scaled.cpp", "c++")
    given = files.arguments(kernel, sizes)
    made = files.results(kernel, given, sizes)
    files.called_as_c(library["scaled"], kernel, given, made, files.count_of(kernel, files.LEAD))
    files.holds(kernel, given, made, "cpp")
