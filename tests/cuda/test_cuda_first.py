"""What a process does for its first result before NVRTC: one reading of the kernel, a source without the host's part, few modules."""

from __future__ import annotations

import re

import pytest

import kgen
from kgen import check, syntax
from kgen.backends import backend
from kgen.backends.cuda import Cuda
from tests import warm
from tests.programs import PROGRAMS

SPECS = ("softmax", "gelu", "layernorm", "adamw", "rope", "cross_entropy", "cumsum", "min_p_mask", "embedding_backward")


def settled(text: str) -> str:
    """A text without the `_` by which a name differs from one that the host's part has."""
    return re.sub(r"(\w)_\b", r"\1", text)


@pytest.mark.parametrize("name", [*PROGRAMS, *SPECS])
def test_the_runtime_takes_what_is_written_but_for_the_hosts_part(name: str) -> None:
    cuda = backend("cuda")
    assert isinstance(cuda, Cuda)
    if name in PROGRAMS:
        kernel = check.check(syntax.parse(PROGRAMS[name], "program.k"))
    else:
        try:
            kernel = kgen.load(name).kernel
        except kgen.KgenError:
            pytest.skip("there is no such spec")
    source, units, workspaces = cuda.for_launches(kernel)
    assert units == cuda.layout(kernel) and workspaces == cuda.workspaces(kernel)
    device, host = settled(source).rstrip(), settled(cuda.render(kernel))
    assert host.startswith(device) and host[len(device) :].lstrip().startswith("#ifndef __CUDACC_RTC")


def test_a_first_result_loads_nothing_of_other_kernels() -> None:
    """Neither modules nor functions of the prelude nor templates that other kernels need."""
    code = (
        "import sys, torch, kgen\n"
        "from kgen.backends import backend\n"
        "from kgen.expressions import prelude\n"
        "from kgen.runtime import arguments, nvrtc\n"
        "k = kgen.load('softmax').kernel\n"
        "assert kgen.load('softmax')._parts is None\n"
        "assert len(nvrtc.expressions(k, arguments.bind(k, (torch.empty(8, 4096),), {}, None), 'sm_90')) == 1\n"
        "print(sorted(prelude().parsed), sorted(name for _, name in backend('cuda').environment().cache.keys()))\n"
        "print(*sorted(m for m in sys.modules if m.startswith('kgen.')), *({'sympy', 'mpmath'} & set(sys.modules)))"
    )
    done = warm.run("-c", code)
    assert not done.stderr, done.stderr
    first, modules = done.stdout.splitlines()
    assert first == "[] ['banner.jinja', 'kernel.cu.jinja', 'rows.cu.jinja']"
    others = {"kgen.parts", "kgen.tape", "kgen.windowed", "kgen.grad", "kgen.trace", "kgen.runtime.scans", "kgen.runtime.tiles", "sympy", "mpmath"}
    assert not others & set(modules.split())
