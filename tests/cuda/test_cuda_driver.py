"""What kgen asks of CUDA's driver, held against a driver that only takes notes."""

import pytest

from kgen.runtime import driver


def test_shared_memory_is_asked_for_whatever_a_kernel_has_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 48 KB that need no asking are those of a launch and of the kernel's own arrays together: a launch of 32 KB may be above them."""
    asked: list[int] = []

    class Notes:
        def cuKernelSetAttribute(self, attribute: int, value: int, kernel: int, device: int) -> int:
            asked.append(value)
            return 0

    monkeypatch.setattr(driver, "_driver", Notes)
    monkeypatch.setattr(driver, "_device", lambda index: index)
    function = object.__new__(driver.Function)
    function.kernel, function.allowed = 1, {}
    for shared in (0, 16384, 32768, 16384, 65536):
        function.allow(0, shared, 1)
    assert asked == [16384, 32768, 65536]
