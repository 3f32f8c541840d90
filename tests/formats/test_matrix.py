"""Quantise after anything, on the CPU; tests/gpu/test_gpu_formats.py has all of it on a GPU."""

from __future__ import annotations

import pytest

import kgen
from kgen import check, syntax
from tests.formats import matrix

pytestmark = pytest.mark.usefixtures("built_quickly_by_default")

DEFAULT = {("rmsnorm", "f8e4m3", "columns"), ("silu_mul", "mxfp8", "swizzled"), ("add_rmsnorm", "nvfp4", "rows"), ("softmax", "int4", "padded")}


@pytest.mark.parametrize("case", [pytest.param(c, id="-".join(c), marks=() if c in DEFAULT else pytest.mark.slow) for c in matrix.pairs()])
def test_a_producer_and_its_quantisation(case: tuple[str, str, str]) -> None:
    given = matrix.arguments(*case)
    matrix.held(*case, given, kgen.loads(matrix.spec(*case))(*given))


def test_every_spec_of_the_matrix_is_one() -> None:
    assert len(matrix.pairs()) == 7 * (8 * 3 + 2)
    for producer in matrix.PRODUCERS:
        for case in [("copy", f, lay) for _, f, lay in matrix.pairs()[: 26]] if producer == "copy" else [(producer, "f8e4m3", "rows")]:
            check.check(syntax.parse(matrix.spec(*case), "matrix.k"))
