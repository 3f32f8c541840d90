"""A candidate's gradients: those of autograd through it, held to the derived backward.

They are held to the backward that computes everything anew from the parameters (`grad.backward` without savings), whose parameters are the
cotangents and what of the forward's the gradients depend on.  The forward needs all of its own: those that no gradient reads are zeros.
"""

from __future__ import annotations

from typing import Any

from kgen import check as checker
from kgen.testing.checks import Saving
from kgen.verify.candidates import Named
from kgen.verify.held import Held, interface_of
from kgen.verify.report import Report


class HeldGradients(Held):
    """A candidate whose gradients are held to those of its spec."""

    gradients = True

    def __init__(self, forward: checker.Kernel, named: Named, device: str, timeout: float, memory: int, report: Report):
        """Raises `KgenError` where the spec has no gradients."""
        from kgen.grad import backward

        self.forward = forward
        self.made = backward(checker.plain(forward), save=False)
        self.saving = Saving(checker.plain(forward))
        super().__init__(self.made.kernel, named, device, timeout, memory, report)
        self.spec = forward.file.source.text

    def interface(self) -> dict[str, Any]:
        order = {name: k for k, name in enumerate(r.name for r in self.kernel.results)}
        wanted = sorted(self.made.gradients, key=lambda n: order[self.made.gradients[n]])
        through = {"cotangents": self.made.cotangents, "gradients": wanted, "takes": [p.name for p in self.saving.kernel.params]}
        return interface_of(self.kernel) | {"forward": interface_of(self.saving.kernel), "through": through}

    def people(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the backward, and those of the forward that it lacks."""
        whole = self.saving.whole(arguments)
        missing = {n: x for n, x in whole.items() if n not in arguments}
        batch = self.saving.batch(arguments)
        given = dict(arguments)
        for p in self.saving.made.kernel.params:  # cotangents have all leading dims of the results
            if p.name in self.made.cotangents.values() and p.dims and p.dims[0] == "...":
                x = given[p.name]
                given[p.name] = x.expand([*batch, *x.shape[x.dim() + 1 - len(p.dims) :]])
        return given | missing
