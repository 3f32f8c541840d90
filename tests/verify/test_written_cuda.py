"""What verify passes to the functions of C of a written CUDA file is what their heads say."""

from __future__ import annotations

import re

import pytest

import kgen
from kgen.backends import backend
from kgen.backends.base import Render
from kgen.backends.sorts import SortUnit
from kgen.verify.written import tensors_of

SPECS = ("softmax", "gelu", "adamw", "cross_entropy", "rmsnorm", "layernorm", "embedding", "cumsum", "lerp_ema", "rope", "group_int8", "batchnorm_stats",
         "max_pool2d", "laplacian", "moving_average", "causal_conv4", "scatter_add")


@pytest.mark.parametrize("name", SPECS)
def test_tensors_stand_in_the_order_of_the_head(name: str) -> None:
    runnable = kgen.load(name)
    kernel = (runnable._parts.runnable if runnable._parts is not None else runnable).kernel
    render = Render(backend("cuda"), kernel)
    text = backend("cuda").render(kernel, dict.fromkeys(kernel.variables, "f32"))
    for unit in render.units():
        entry = "_".join((unit.name, *("f32" for _ in unit.dtype_variables)))
        head = re.search(rf'extern "C"[^(]*\b{entry}\(([^)]*)\)', text)
        assert head is not None, entry
        params = [" ".join(p.split()) for p in head[1].split(",")]
        names = [p.rsplit(" ", 1)[1] for p in params if "*" in p and not p.endswith(("_stride", " size"))]
        strides = [p for p in params if p.startswith("const i64* ") and p.endswith("_stride")]
        if isinstance(unit, SortUnit):
            own_names = [t.name.strip("\u01c0\u01c1") for t in unit.tensors]
            assert [p.rsplit(" ", 1)[1] for p in params[2:-1:2]] == own_names and len(params) == 3 + 2 * len(own_names), head[0]
            continue
        own = tensors_of(render, unit)
        gathers = len(unit.gathers) if hasattr(unit, "gathers") else 0
        called = [n.removesuffix("_") if not spec_name.startswith("%") else spec_name for n, (spec_name, _, _) in zip(names, own, strict=True)]
        assert called == [spec_name for spec_name, _, _ in own], head[0]  # what is kept between passes has no name in the spec
        assert len(strides) == sum(walked for _, _, walked in own) + gathers, head[0]
        reaches = getattr(unit, "reaches", ())
        behind = len(reaches) + len({r.dim for r in reaches}) + 2 * gathers + len(unit.numbers)
        assert len(params) == 3 + hasattr(unit, "rows") + len(names) + len(strides) - gathers + behind, head[0]
