"""Emitted Triton files with places, parts and split axes, under Triton's interpreter."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kgen
from kgen.backends import backend
from tests import warm
from tests.conftest import ROOT
from tests.headers_where import CASES

TEXTS = {name: (ROOT / "specs" / f"{name}.k").read_text() for name in ("rope", "rope_interleaved", "laplacian")}
TEXTS["conv"] = """conv(x: T[..., C, N], w: T[C, 4]) -> y: T[..., C, N]

y = sum[4](x[N = index[N] - 3 + index[4] else 0] * w)
"""
TEXTS["around"] = "around(x: T[..., N]) -> y: T[..., N]\n\ny = x[N = (index[N] + 1) % N] - x[N = N - 1 - index[N]]\n"
TEXTS["woven"] = """woven(x: T[..., N], y: T[..., N]) -> z: T[..., N*3]

z = x if index[3] == 0 else y if index[3] == 1 else x * y
"""
TEXTS["stacked"] = """stacked(x: T[..., 4, N]) -> z: T[..., 4, 8, N]

z = x * index[8] + x[4 = 0] * index[4]
"""
#: A part written in place beside a lookup in another part, which shares no element with it.
TEXTS["led"] = """led(x: T[..., 2, N]) -> (x': T[..., 2, N], y: T[..., 2, N])

x' = (x * 2)[N = index[N] + 1 else 0][2 = 0]
y = x' - max[2](x' * x)
"""
#: No tensor says the device: `out` does.
TEXTS["alone"] = "alone(k: int) -> (y: i64[4], z: i64[4])\n\ny = index[4] * k\nz = index[4] + k\n"
#: Sizes that follow from others.
TEXTS |= {name: text for name, (text, _, _) in CASES.items() if name != "top"}


@pytest.mark.slow
def test_host_functions_give_what_torch_gives(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    for spec in TEXTS.values():
        for file, text in backend("triton").written(kgen.loads(spec).kernel).items():
            (tmp_path / file).write_text(text)
    env = {**os.environ, "TRITON_INTERPRET": "1", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    script = ROOT / "tests" / "triton" / "interpreted_places.py"
    done = warm.run(script, tmp_path, env=env)
    assert done.returncode == 0 and "held" in done.stdout, done.stderr[-3000:]
