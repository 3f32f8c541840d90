"""Kernels whose threads need more registers than their step's blocks leave them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.resources import resource  # noqa: E402
from kgen.runtime import arguments, driver, nvrtc, spills  # noqa: E402

without_nvrtc = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
#: A layer norm, and twice as many parameters.
NORM = "norm(x: T[..., N], w: T[N], b: T[N]) -> y: T[..., N]\n\nd = x - mean[N](x)\ny = d * rsqrt(mean[N](d^2) + 1e-5) * w + b\n"
SCALED = """scaled(x: T[..., N], w: T[N], b: T[N], s: T[N], t: T[N]) -> y: T[..., N]

d = x - mean[N](x)
y = (d * rsqrt(mean[N](d^2) + 1e-5) * w + b) * (1 + s) + t
"""


def launched(text: str, n: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], int, int]]:
    """The kernels of a call on rows of `n` elements, on an sm_90: each with what the assembler said of every attempt, and what its walk gives a
    block and a thread."""
    kernel, found = kgen.loads(text).kernel, list[tuple[str, list[str], int, int]]()
    compiled, chosen = driver.compiled, spills.compiled

    def noted(*given: Any) -> Any:
        made = compiled(*given)
        found[-1][1].append(made[2])
        return made

    def asked(source: str, expression: str, arch: str, options: Any, blocks: int, vectors: int) -> Any:
        found.append((expression, [], blocks, vectors))
        return chosen(source, expression, arch, options, blocks, vectors)

    monkeypatch.setattr(driver, "compiled", noted)
    monkeypatch.setattr(spills, "compiled", asked)
    monkeypatch.setattr(nvrtc, "load", lambda cubin, name: type("Loaded", (), {"cubin": cubin, "entry": ""})())
    launcher = nvrtc.Launcher(kernel)
    launcher.run.arch, launcher.run.lookup, launcher.run.save = "sm_90", None, None
    tensors = [torch.empty((4096, n) if len(p.dims) > 1 else (n,), dtype=dtype) for p in kernel.params if p.is_tensor]
    call = arguments.bind(kernel, tuple(tensors), {}, None)
    named = {**call.given, **call.results}
    for k in range(len(launcher.units)):
        launcher.prepared(k, call, named, 0)
    return found


def spilled(log: str) -> int:
    return sum(map(int, re.findall(r"(\d+) bytes spill stores", log)))


@without_nvrtc
@pytest.mark.parametrize("text, n, dtype", [(NORM, 768, torch.bfloat16), (SCALED, 768, torch.bfloat16), (SCALED, 4096, torch.float32)])
def test_a_kernel_has_as_few_blocks_as_its_registers_ask_for(text: str, n: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the last attempt spills is no more than is allowed, or there is none left; what those before it spilled was."""
    ((_, logs, blocks, vectors),) = launched(text, n, dtype, monkeypatch)
    assert len(logs) > 1 and blocks > 1
    for log in logs:
        last = log is logs[-1]
        assert (spilled(log) > spills.allowed(blocks, vectors)) != last or (last and len(logs) == spills.TRIES + 1)
        blocks = blocks if last else spills.fewer(blocks)
    assert spilled(logs[-1]) < spilled(logs[0])


@without_nvrtc
def test_a_kernel_that_has_its_registers_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "specs" / "layernorm.k").read_text()
    ((_, logs, *_),) = launched(text, 1024, torch.bfloat16, monkeypatch)
    assert len(logs) == 1 and spilled(logs[0]) == 0


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_both_count_the_same_blocks(tmp_path: Path) -> None:
    """What the runtime takes for the blocks of an attempt is what the source's launch bounds have."""
    source = (resource("templates") / "cuda" / "library" / "kgen_numbers.cuh").read_text()
    templates = "".join(re.findall(r"^template <int COUNT.*\n", source, re.M)).replace(" = EASED", "")
    asked = ", ".join(f"Eased<{blocks}, {times}>::BLOCKS" for times in range(5) for blocks in range(1, 33))
    (tmp_path / "eased.cpp").write_text(f'#include <cstdio>\n{templates}int main() {{ const int all[] = {{{asked}}}; for (int n : all) std::printf("%d ", n); }}\n')
    subprocess.run(["g++", "-std=c++17", "-o", tmp_path / "eased", tmp_path / "eased.cpp"], check=True)
    found = list(map(int, subprocess.run([tmp_path / "eased"], capture_output=True, check=True).stdout.split()))
    wanted = list(range(1, 33))
    for k in range(5):
        assert found[32 * k : 32 * k + 32] == wanted
        wanted = [spills.fewer(b) if b > 1 else 1 for b in wanted]


@without_nvrtc
def test_a_kernel_that_is_asked_for_by_its_name_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `kgen tune` asks: names first, of which nothing is compiled, and then each by itself."""
    ((name, logs, *_),) = launched(NORM, 768, torch.bfloat16, monkeypatch)
    monkeypatch.undo()
    launcher = nvrtc.Launcher(kgen.loads(NORM).kernel)
    launcher.run.arch, launcher.run.lookup, launcher.run.save = "sm_90", None, None
    call = arguments.bind(launcher.kernel, (torch.empty(4096, 768).bfloat16(), *(torch.empty(768).bfloat16() for _ in "wb")), {}, None)
    made, compiled = list[Any](), driver.compiled
    with monkeypatch.context() as patch:
        patch.setattr(launcher.run, "function", lambda expression, arch: made.append(expression))
        launcher.prepared(0, call, {**call.given, **call.results}, 0)
    assert made == [name]
    monkeypatch.setattr(driver, "compiled", lambda *given: made.append(found := compiled(*given)) or found)
    monkeypatch.setattr(nvrtc, "load", lambda cubin, name: type("Loaded", (), {"cubin": cubin, "entry": ""})())
    launcher.run.function(name, "sm_90")
    assert [spilled(log) for *_, log in made[1:]] == [spilled(log) for log in logs]
