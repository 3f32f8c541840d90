"""What is no spec, no target or no file that can be built is refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kgen
from kgen.cli import main

SPEC = "f(x: T[N]) -> y: T[N]\n\ny = x + 1\n"


@pytest.mark.parametrize(("spec", "said"), [(None, "not a NoneType"), (b"f", "not a bytes"), (3, "not an int")])
def test_a_spec_is_text_or_a_path(spec: Any, said: str) -> None:
    with pytest.raises(kgen.KgenError, match=said):
        kgen.loads(spec)
    if not isinstance(spec, bytes):
        with pytest.raises(kgen.KgenError, match=said):
            kgen.load(spec)


def test_an_unknown_target_is_named() -> None:
    f = kgen.loads(SPEC)
    for call in (lambda: f.check(examples=1, target="foo"), lambda: f.show("source", "foo"), lambda: f.source("foo")):
        with pytest.raises(kgen.KgenError, match="there is no target foo"):
            call()


def test_what_goes_to_stdout_is_not_built(tmp_path: Path) -> None:
    spec = tmp_path / "f.k"
    spec.write_text(SPEC)
    done = CliRunner().invoke(main, ["compile", str(spec), "--target", "cpp", "-o", "-", "--build"])
    assert done.exit_code == 2 and "--build takes no -o -" in done.output
    done = CliRunner().invoke(main, ["compile", str(spec), "--arch", "sm_80", "-o", str(tmp_path / "out")])
    assert done.exit_code == 2 and "--arch is for --build" in done.output and not (tmp_path / "out").exists()
