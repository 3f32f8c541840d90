"""Optimisers of torch's form, whose step is one launch for all of a model's parameters.

In: parameters or groups of them, as `torch.optim` takes them.  Out: `torch.optim.Optimizer`s, and gradients clipped by their norm.
`AdamW` and `SGD` are torch's own, with their groups, schedules and state dicts; what differs is the step, and that moments of 16-bit
parameters are kept in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import torch

from kgen.errors import KgenError
from kgen.runtime.kernel import Kernel, loads
from kgen.torch_op.layers import FLOATS, bundled


class _Optimizer(torch.optim.Optimizer):
    """What the optimisers share.  A class says which options it lacks, and steps over the parameters of a group that have gradients."""

    #: Options that are refused where they are set, with the reason.
    lacks: dict[str, str] = {}
    #: The state's tensors that are as a parameter, which are kept in the dtype that is computed in.
    moments: tuple[str, ...] = ()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's.  Raises `KgenError` for options that the optimiser lacks, and for parameters that are no real floats."""
        super().add_param_group(param_group)
        try:
            self._check(self.param_groups[-1])
        except KgenError:
            self.param_groups.pop()
            raise

    def _check(self, group: dict[str, Any]) -> None:
        name = type(self).__name__
        for option, why in self.lacks.items():
            if group.get(option):
                raise KgenError(f"{name}: {option}={group[option]} is not supported: {why}", help="torch's own optimiser has it")
        for p in group["params"]:
            if p.dtype not in FLOATS:
                raise KgenError(f"{name}: a parameter is {p.dtype}", help="it takes float16, bfloat16, float32 and float64")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's; but moments keep the precision that they have, where torch would round them to their parameter's dtype.

        What the dict says of torch's ways to launch (`foreach`, `fused`) is left out.  Raises `KgenError`, and loads nothing, for options
        that the optimiser lacks."""
        groups = [{k: (None if k in ("foreach", "fused") else v) for k, v in g.items()} for g in state_dict["param_groups"]]
        for group in groups:
            self._check({**group, "params": []})
        given = {**state_dict, "param_groups": groups}
        super().load_state_dict(given)
        params = [p for group in self.param_groups for p in group["params"]]
        keys = [k for group in state_dict["param_groups"] for k in group["params"]]
        for key, p in zip(keys, params, strict=True):
            own = given["state"].get(key, {})
            if isinstance(own.get("step"), torch.Tensor):
                self.state[p]["step"] = own["step"].clone()  # torch's loading keeps it one with the dict's
            for name in self.moments:
                if isinstance(own.get(name), torch.Tensor):
                    self.state[p][name] = own[name].to(p.device, _wide(p), copy=True)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of every parameter that has a gradient; `closure` computes the loss anew, which is returned.

        Raises `KgenError` for sparse gradients, and those of another dtype than their parameter's."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                params = [p for p in group["params"] if p.grad is not None]
                if params:
                    self._step(group, params, self._gradients(group, params))
        return loss

    def _step(self, group: dict[str, Any], params: list[Any], grads: list[Any]) -> None:
        raise NotImplementedError

    def _gradients(self, group: dict[str, Any], params: list[Any]) -> list[Any]:
        """The gradients; where the group is to maximise, new ones of the other sign."""
        grads = [p.grad for p in params]
        if any(g.layout is not torch.strided for g in grads):
            raise KgenError(f"{type(self).__name__}: a gradient is sparse", help="torch.optim.SparseAdam and SGD take sparse gradients")
        return list(torch._foreach_neg(grads)) if group.get("maximize") else grads

    def _moments(self, params: list[Any], name: str) -> list[Any]:
        """A moment of each parameter, in the dtype that is computed in; zeros where there is none."""
        made = []
        for p in params:
            state = self.state[p]
            found = state.get(name)
            if found is None:
                found = torch.zeros_like(p, dtype=_wide(p), memory_format=torch.preserve_format)
            elif found.dtype != _wide(p):
                found = found.to(_wide(p))
            state[name] = found
            made.append(found)
        return made


def _wide(p: torch.Tensor) -> torch.dtype:
    """The dtype that is computed in for a parameter."""
    return torch.float64 if p.dtype == torch.float64 else torch.float32


def _shared(values: Sequence[Any]) -> Any:
    """One number where all are the same, else a list."""
    return values[0] if all(v == values[0] for v in values) else list(values)


_DIFFERENTIABLE = "a step of kernels keeps no history"


class AdamW(_Optimizer, torch.optim.AdamW):
    """`torch.optim.AdamW`: its arguments and state dict, both ways.  A step is one launch for all parameters of a device and dtype.

    With `capturable` the numbers of the steps lie on the parameters' devices, so that a CUDA graph counts them: a step is two launches.
    Its learning rate is that of the capture.  Raises `KgenError` for amsgrad and differentiable, and for foreach and fused, which choose
    among torch's own ways."""

    lacks = {
        "amsgrad": "specs/adamw.k keeps no maximum of the second moment",
        "differentiable": _DIFFERENTIABLE,
        "foreach": "a step is one launch without it",
        "fused": "a step is one launch without it",
    }
    moments = ("exp_avg", "exp_avg_sq")

    def _step(self, group: dict[str, Any], params: list[Any], grads: list[Any]) -> None:
        """Step the parameters of a group, and count that in their states.  Raises `KgenError` while a CUDA graph is captured."""
        if group.get("capturable"):
            self._counted_there(group, params, grads)
            return
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise KgenError("AdamW: a CUDA graph would repeat one step's bias corrections", help="make it with capturable=True")
        ms, vs = self._moments(params, "exp_avg"), self._moments(params, "exp_avg_sq")
        steps = []
        for p in params:
            state = self.state[p]
            step = state.get("step")
            if step is None or step.device.type != "cpu":
                state["step"] = step = torch.tensor(0.0 if step is None else float(step))
            steps.append(step)
        torch._foreach_add_(steps, 1)
        b1, b2 = group["betas"]
        bundled("adamw").foreach(
            params, grads, ms, vs, t=_shared([int(t) for t in torch.stack(steps).tolist()]), lr=float(group["lr"]), b1=float(b1),
            b2=float(b2), eps=group["eps"], wd=float(group["weight_decay"]),
        )  # fmt: skip

    def _counted_there(self, group: dict[str, Any], params: list[Any], grads: list[Any]) -> None:
        """Step the parameters of a group whose steps are counted on their devices.  Raises `KgenError` where a CUDA graph would make the
        state anew."""
        capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        if capturing and any("step" not in self.state[p] for p in params):
            raise KgenError("AdamW: a CUDA graph would begin at zero again", help="step once before the capture")
        ms, vs = self._moments(params, "exp_avg"), self._moments(params, "exp_avg_sq")
        for p in params:
            step = self.state[p].get("step")
            if step is None or step.device != p.device:
                self.state[p]["step"] = torch.zeros((), device=p.device) if step is None else step.to(p.device, torch.float32)
        corrections, adamw = _capturable()
        b1, b2 = float(group["betas"][0]), float(group["betas"][1])
        c1, c2 = corrections.foreach([self.state[p]["step"] for p in params], b1, b2)
        numbers = {"lr": float(group["lr"]), "b1": b1, "b2": b2, "eps": group["eps"], "wd": float(group["weight_decay"])}
        adamw.foreach(params, grads, ms, vs, c1, c2, **numbers)


class SGD(_Optimizer, torch.optim.SGD):
    """`torch.optim.SGD`: its arguments and state dict, both ways.  A step is one launch for all parameters of a device and dtype.

    Raises `KgenError` for differentiable, and for foreach and fused, which choose among torch's own ways."""

    lacks = {
        "differentiable": _DIFFERENTIABLE,
        "foreach": "a step is one launch without it",
        "fused": "a step is one launch without it",
    }
    moments = ("momentum_buffer",)

    def _step(self, group: dict[str, Any], params: list[Any], grads: list[Any]) -> None:
        lr, wd = float(group["lr"]), float(group["weight_decay"])
        if not group["momentum"]:
            bundled("sgd").foreach(params, grads, lr=lr, wd=wd)
            return
        first = [self.state[p].get("momentum_buffer") is None for p in params]
        dampening = _shared([0.0 if new else float(group["dampening"]) for new in first])
        ms = self._moments(params, "momentum_buffer")
        bundled("sgd_momentum").foreach(
            params, grads, ms, lr=lr, momentum=float(group["momentum"]), dampening=dampening, wd=wd, nesterov=int(group["nesterov"])
        )


class Lion(_Optimizer):
    """Lion (Chen et al. 2023): the sign of momentum and gradient mixed.  A step is one launch for all parameters of a device and dtype.

    `params` are parameters or groups, `lr` a number or a tensor, `betas` how much of the moment goes into the step and into the next
    moment, `weight_decay` is decoupled, `maximize` goes up.  The state has `exp_avg`.  Raises `KgenError` for settings out of their
    ranges.
    """

    moments = ("exp_avg",)

    def __init__(
        self,
        params: Any,
        lr: float | torch.Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ):
        b1, b2 = betas
        if not (float(lr) >= 0 and 0 <= b1 < 1 and 0 <= b2 < 1 and weight_decay >= 0):
            raise KgenError(f"Lion: lr={float(lr)}, betas={betas} or weight_decay={weight_decay} is out of its range")
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    def _step(self, group: dict[str, Any], params: list[Any], grads: list[Any]) -> None:
        b1, b2 = group["betas"]
        ms = self._moments(params, "exp_avg")
        bundled("lion").foreach(params, grads, ms, lr=float(group["lr"]), b1=b1, b2=b2, wd=float(group["weight_decay"]))


#: A step of AdamW whose number is a tensor: the corrections, in f64 whatever the parameters are, and the step itself.
CORRECTIONS = """
corrections(t: f32[], b1: float, b2: float) -> (t': f32[], c1: f64[], c2: f64[])

t' = t + 1
c1 = 1 - b1^f64(t')
c2 = 1 - b2^f64(t')
"""
CAPTURABLE = """
adamw_capturable(p: T[...], g: T[...], m: T32[...], v: T32[...], c1: f64[], c2: f64[], lr: float, b1: float, b2: float, eps: float,
                 wd: float) -> (p': T[...], m': T32[...], v': T32[...])

m' = b1*m + (1 - b1)*g
v' = b2*v + (1 - b2)*g^2
u  = (m' / c1) / (sqrt(v' / c2) + eps)
p' = p - lr*(u + wd*p)
"""


@cache
def _capturable() -> tuple[Kernel, Kernel]:
    return loads(CORRECTIONS, "corrections.k"), loads(CAPTURABLE, "adamw_capturable.k")


@torch.no_grad()
def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """`torch.nn.utils.clip_grad_norm_`: scale the gradients of parameters so that the norm of them all is at most `max_norm`; returns what
    it was.

    Sums are in f32 (f64 of f64 gradients) in a fixed order, and so is what is returned; nothing waits for the device.  `foreach` changes
    nothing.  Raises `KgenError` for other norms than the 2-norm, for `error_if_nonfinite`, which would wait, and for sparse gradients."""
    if float(norm_type) != 2.0 or error_if_nonfinite:
        raise KgenError("clip_grad_norm_: it takes the 2-norm alone, and waits for nothing", help="torch.nn.utils.clip_grad_norm_ has more")
    given = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    grads = [p.grad for p in given if p.grad is not None]
    if not grads:
        return torch.tensor(0.0)
    if any(g.layout is not torch.strided for g in grads):
        raise KgenError("clip_grad_norm_: a gradient is sparse", help="torch.nn.utils.clip_grad_norm_ takes sparse gradients")
    return bundled("clip_grad_norm").foreach(grads, float(max_norm), whole=True)


__all__ = ["SGD", "AdamW", "Lion", "clip_grad_norm_"]
