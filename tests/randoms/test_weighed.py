"""The random words pass statistical tests: no p-value is further out than one in a million."""

from __future__ import annotations

import pytest

from tests.randoms.weighed import tests as weighed


@pytest.mark.parametrize("log2", [18, pytest.param(26, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("built_quickly_by_default")
def test_words_look_random(log2: int) -> None:
    found = list(weighed(log2))
    assert len(found) == 13 and all(p > 1e-6 for *_, p in found), found
