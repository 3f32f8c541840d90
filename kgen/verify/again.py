"""One case of an examination once more, for programs that show a failure."""

from __future__ import annotations

from typing import Any


def again(
    candidate: Any, spec: Any, arguments: dict[str, Any], device: str = "cpu", timeout: float = 60.0, gradients: bool = False,
    **setting: Any,
) -> None:  # fmt: skip
    """Hold a candidate to a spec, or its `gradients`, in one case, which is called as the fields of a `plan.Setting` say.

    Raises `CheckFailed` with what is wrong."""
    from kgen.testing.against import subject
    from kgen.testing.checks import CheckFailed
    from kgen.verify import candidates, flashinfer
    from kgen.verify.gradients import HeldGradients
    from kgen.verify.held import Held, Refused, Unloadable
    from kgen.verify.plan import Setting
    from kgen.verify.report import Report

    kernel = subject(spec).kernel
    report = Report(str(candidate), kernel.name, device)
    kind = HeldGradients if gradients else Held
    solution = isinstance(candidate, str) and candidate.endswith(".json")
    named = flashinfer.named(candidate) if solution else candidates.named(candidate)
    held = kind(kernel, named, device, timeout, 8 << 30, report)
    setting = {k: tuple(v) if isinstance(v, list) else v for k, v in setting.items()}
    cpu = {n: x.cpu() if hasattr(x, "cpu") else x for n, x in arguments.items()}
    try:
        held.start()
        found = [f"{f.kind.value}: {f'result {f.result}: ' if f.result else ''}{f.message}" for f in held.findings(cpu, Setting(**setting))]
    except (Refused, Unloadable) as error:
        found = [str(error)]
    finally:
        held.close()
    if found:
        raise CheckFailed("\n".join(found))
