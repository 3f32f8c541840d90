"""FlashInfer-Bench solutions as candidates: a solution (JSON), its definition (JSON), workloads (JSON lines); a trace goes out.

The spec says what is to be computed; the definition says in which dtypes, sizes and order of arguments.  Its inputs are the spec's
parameters, by name or in order.  The schema is that of the FlashInfer Trace
(github.com/flashinfer-ai/flashinfer-bench, docs/flashinfer_trace).
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kgen import check as checker
from kgen.errors import KgenError, printed
from kgen.types import ELLIPSIS, TORCH, is_variable, variable_of
from kgen.verify.candidates import Named
from kgen.verify.report import Finding, Kind

#: Elements of a workload's largest tensor up to which its results are judged, each by its own bound.
MOST = 1 << 23
STATUS = {
    Kind.SHAPE: "INCORRECT_SHAPE", Kind.DTYPE: "INCORRECT_DTYPE", Kind.LOADS: "COMPILE_ERROR", Kind.RAISES: "RUNTIME_ERROR",
    Kind.CRASH: "RUNTIME_ERROR", Kind.HANG: "TIMEOUT", Kind.MEMORY: "RUNTIME_ERROR", Kind.READ: "RUNTIME_ERROR",
    Kind.RETURNED: "RUNTIME_ERROR",
}  # fmt: skip


@dataclass(frozen=True)
class Solution:
    """A solution with its definition, and its workloads, each beside the folder that its files are named from."""

    named: Named
    definition: dict[str, Any]
    workloads: list[dict[str, Any]] = field(default_factory=list)
    folder: Path = Path()


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KgenError(f"cannot read {printed(str(path), '')}: {getattr(error, 'strerror', None) or 'it is no JSON'}") from None


def named(solution: str | Path) -> Named:
    """What names a solution, by its file alone.  Raises `KgenError` for what is none, or is in a language that is not loaded here."""
    return _named(Path(solution))[0]


def _named(path: Path) -> tuple[Named, str]:
    """What names a solution, and the name of its definition."""
    found = _json(path)
    try:
        build, sources = found["spec"], tuple({"path": s["path"], "content": s["content"]} for s in found["sources"])
        name, of, entry, language = found["name"], found["definition"], build["entry_point"], build["language"]
    except (KeyError, TypeError):
        raise KgenError(f"{printed(str(path), '')} is no solution", help="it has a name, a definition, a spec and sources") from None
    language = language if isinstance(language, str) else language[0] if language else ""
    if not entry.partition("::")[0].endswith(".py"):
        help = "solutions whose entry point is a .py file are loaded"
        raise KgenError(f"{printed(str(path), '')} is in {printed(str(language), '')}", help=help)
    return Named("solution", str(name), str(path), entry, sources, build.get("destination_passing_style")), str(of)


def read(solution: str | Path, definition: str | Path | None, workloads: str | Path | None) -> Solution:
    """A solution from its files.  Without a `definition` it is looked for beside the solution, and in the folders above under
    `definitions`.  Raises `KgenError` for what is no solution, or is in a language that is not loaded here."""
    path = Path(solution)
    named, of = _named(path)
    place = Path(definition) if definition is not None else _beside(path, of)
    defined = _json(place)
    if not isinstance(defined, dict) or not {"axes", "inputs", "outputs"} <= set(defined):
        raise KgenError(f"{printed(str(place), '')} is no definition", help="it has axes, inputs and outputs")
    lines: list[dict[str, Any]] = []
    if workloads is not None:
        try:
            lines = [json.loads(line) for line in Path(workloads).read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, ValueError) as error:
            raise KgenError(f"cannot read {printed(str(workloads), '')}: {error}") from None
    return Solution(named, defined, [w["workload"] for w in lines], Path(workloads).parent if workloads else path.parent)


def _beside(path: Path, name: str) -> Path:
    """The definition of a name, beside a solution or in a dataset around it."""
    if (near := path.with_name(f"{name}.json")).exists() and near != path:
        return near
    for folder in path.resolve().parents:
        if (folder / "definitions").is_dir():
            found = sorted((folder / "definitions").rglob(f"{name}.json"))
            if found:
                return found[0]
    raise KgenError(f"there is no definition {printed(name)} beside {printed(str(path), '')}", help="name it by --definition")


def matched(kernel: checker.Kernel, definition: dict[str, Any]) -> dict[str, str]:
    """The input of the definition that each parameter of a spec is: by name, else in order.  Raises `KgenError` where they do not fit."""
    inputs = definition["inputs"]
    params = [p.name for p in kernel.params]
    if set(params) <= set(inputs):
        return {n: n for n in params}
    if len(params) < len(inputs):
        raise KgenError(f"the definition has the inputs ({', '.join(inputs)})", help=f"the spec is {kernel.signature()}")
    return dict(zip(params, inputs, strict=False))


def limits(kernel: checker.Kernel, definition: dict[str, Any]) -> dict[str, Any]:
    """What the definition says of a spec's arguments, as `examine` takes it: dtypes, sizes of constant axes, leading dims.

    Raises `KgenError` where a shape is none of the spec's."""
    if kernel.joined:
        raise KgenError(f"{kernel.name} splits axes into dims, which a definition does not", help="write the spec with a dim for each axis")
    of, axes = matched(kernel, definition), definition["axes"]
    sizes: dict[str, tuple[int, ...]] = {}
    leading: set[int] = set()
    dtypes: dict[str, str] = {}
    for p in kernel.params:
        given = definition["inputs"].get(of.get(p.name, ""))
        if given is None or p.dims is None or given["shape"] is None:
            continue
        shape, named = list(given["shape"]), [d for d in p.dims if d != ELLIPSIS]
        if len(shape) < len(named) or ELLIPSIS not in p.dims and len(shape) != len(named):
            raise KgenError(f"{of[p.name]} has the shape [{', '.join(shape)}], {p.name} the dims [{', '.join(p.dims)}]")
        if ELLIPSIS in p.dims:
            leading.add(len(shape) - len(named))
        for d, axis in zip(named, shape[len(shape) - len(named) :], strict=True):
            if axes.get(axis, {}).get("type") == "const":
                sizes[d] = (int(axes[axis]["value"]),)
        if is_variable(p.dtype) and given["dtype"] in TORCH:
            dtypes[variable_of(p.dtype) or p.dtype] = TORCH[given["dtype"]].name
    return {"sizes": sizes or None, "leading": tuple(leading) or None, "dtypes": dtypes or None}


def arguments(kernel: checker.Kernel, solution: Solution, workload: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a workload, by the spec's parameters; random inputs follow from its uuid.  Raises `KgenError` for an input that is
    not there."""
    import torch

    from kgen.runtime.arguments import default

    of, definition = matched(kernel, solution.definition), solution.definition
    axes = {n: a["value"] for n, a in definition["axes"].items() if a.get("type") == "const"} | workload["axes"]
    generator = torch.Generator().manual_seed(sum(map(ord, str(workload.get("uuid", "")))))
    made: dict[str, Any] = {}
    for p in kernel.params:
        if p.name not in of:
            made[p.name] = default(p)
            continue
        how, declared = workload["inputs"].get(of[p.name], {"type": "random"}), definition["inputs"][of[p.name]]
        if how["type"] == "scalar":
            made[p.name] = how["value"]
        elif how["type"] == "safetensors":
            made[p.name] = safetensor(solution.folder / how["path"], how["tensor_key"])
        elif declared["shape"] is None:
            made[p.name] = default(p) if p.default is not None else 1
        else:
            shape, dtype = [int(axes[a]) for a in declared["shape"]], getattr(torch, declared["dtype"])
            x = torch.randn(shape, generator=generator) if dtype.is_floating_point else torch.randint(0, 2, shape, generator=generator)
            made[p.name] = x.to(dtype)
    return made


def safetensor(path: Path, key: str) -> Any:
    """A tensor of a safetensors file (the length of a JSON head, the head, the bytes)."""
    import torch

    kinds = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
             "I8": "int8", "U8": "uint8", "BOOL": "bool"}  # fmt: skip
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            head = json.loads(file.read(length))[key]
            begin, end = head["data_offsets"]
            file.seek(8 + length + begin)
            data = bytearray(file.read(end - begin))
    except (OSError, ValueError, KeyError) as error:
        raise KgenError(f"cannot read {printed(key)} of {printed(str(path), '')}: {error}") from None
    dtype = getattr(torch, kinds[head["dtype"]])
    return (torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)).reshape(head["shape"])


def traced(
    held: Any, solution: Solution, report: Any, examined: list[Finding]
) -> Iterator[tuple[dict[str, Any], list[Finding]]]:
    """A trace for each workload, with what is wrong in it.  `examined` are findings of the examination: they are those of each."""
    from kgen.verify.held import Refused
    from kgen.verify.plan import Setting

    for workload in solution.workloads:
        given = arguments(held.kernel, solution, workload)
        largest = max((x.numel() for x in given.values() if hasattr(x, "numel")), default=0)
        found: list[Finding] = []
        if largest > MOST:
            report.untried.append(f"workload {workload.get('uuid', '')}: {largest:,} elements are more than are judged ({MOST:,})")
            continue
        before, held.report.fraction = held.report.fraction, 0.0
        try:
            found = held.findings(given, Setting("middle", way=held.ways[0]))
        except Refused as refused:
            found = [Finding(Kind.RAISES, str(refused), refused.condition)]
        errors = held.errors
        held.report.fraction = max(before, held.report.fraction)
        first = next(iter([*found, *examined]), None)
        status = "PASSED" if first is None else STATUS.get(first.kind, "INCORRECT_NUMERICAL")
        evaluation: dict[str, Any] = {
            "status": status, "log": "" if first is None else f"{first.kind.value}: {first.message}", "correctness": None,
            "performance": None, "environment": _environment(held.device), "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }  # fmt: skip
        if status in ("PASSED", "INCORRECT_NUMERICAL"):
            evaluation["correctness"] = {"max_relative_error": errors[1], "max_absolute_error": errors[0]}
        if status == "PASSED":
            evaluation["performance"] = _performance(held, solution)
        names = {"definition": solution.definition["name"], "solution": solution.named.title}
        yield {**names, "workload": workload, "evaluation": evaluation}, found


def _performance(held: Any, solution: Solution) -> dict[str, float] | None:
    """The milliseconds of a call on the tensors that lie there, and of the definition's own reference on them."""
    said, _ = held.process.ask("clock", reference=solution.definition.get("reference", ""), numbers=held.last_numbers)
    if not said["ms"]:
        return None
    own, theirs = said["ms"], said["reference"] or 0.0
    return {"latency_ms": own, "reference_latency_ms": theirs, "speedup_factor": theirs / own}


def _environment(device: str) -> dict[str, Any]:
    import torch

    machine = torch.cuda.get_device_name().replace(" ", "_") if device == "cuda" else platform.processor() or platform.machine()
    libs = {"torch": str(torch.__version__), "cuda": str(torch.version.cuda)}
    return {"hardware": machine, "libs": libs}
