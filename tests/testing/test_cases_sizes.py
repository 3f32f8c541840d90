"""Sizes of random cases: where others follow from them, and where a value has many dims."""

import math

import kgen
from kgen.testing.cases import GROWN, MAX_ELEMENTS, Draw

WINDOWS = """means(x: T[..., H, W]) -> y: T[..., P, Q] where P = H // 11, Q = W // 11, I = 11, J = 11

y = mean[I, J](x[H = 11 * index[P] + index[I], W = 11 * index[Q] + index[J] else 0])
"""


def test_sizes_that_follow_are_not_0_and_no_tensor_outgrows_memory() -> None:
    """A case whose results have no elements holds nothing, and where a product of sizes is 0 the tensors it is made from may still be huge."""
    kernel = kgen.loads(WINDOWS).kernel
    some, drawn = 0, [Draw(kernel, 0, number) for number in range(60)]
    for draw in drawn:
        x = draw.arguments()["x"]
        assert x.numel() <= MAX_ELEMENTS and x.untyped_storage().nbytes() <= 8 * max(GROWN, 6**2) * 2 * MAX_ELEMENTS
        some += math.prod(draw.batch) * draw.sizes["P"] * draw.sizes["Q"] > 0
    assert some > 0.8 * len(drawn)


def test_tensors_of_two_elements_a_byte_are_drawn_for_sums_too() -> None:
    """What reductions get wrong is not written into them: torch has no copy of such a dtype."""
    kernel = kgen.loads("total(q: f4e2m1[..., G*16]) -> y: f32[..., G]\n\ny = sum[16](f32(q))\n").kernel
    assert all(Draw(kernel, 0, number).arguments()["q"].element_size() == 1 for number in range(40))


def test_bytes_of_floats_are_no_places() -> None:
    """A lookup at an argmax of them, in whose code they are integers, draws no places into them, which torch cannot."""
    kernel = kgen.loads("f(x: f32[M, N], q: f4e2m1[M, N]) -> y: f32[N]\n\nh = x * q\ny = pick[M](h, argmin[M](h))\n").kernel
    assert all(Draw(kernel, 0, number).arguments()["q"].element_size() == 1 for number in range(10))
