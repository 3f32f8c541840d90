"""kgen.optim beside torch.optim: steps, groups, state dicts both ways, closures, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import kgen
from tests.torch_cases import evaluated  # noqa: F401

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("AdamW", {"lr": 1e-2, "betas": (0.8, 0.95), "weight_decay": 0.1}),
    ("AdamW", {"lr": torch.tensor(1e-2, dtype=torch.float64), "maximize": True, "eps": 1e-3}),
    ("SGD", {"lr": 1e-2, "weight_decay": 0.1}),
    ("SGD", {"lr": torch.tensor(1e-2, dtype=torch.float64), "momentum": 0.9, "dampening": 0.3, "maximize": True}),
    ("SGD", {"lr": 1e-2, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
]  # fmt: skip
each_setting = pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=[f"{n}-{'-'.join(s)}" for n, s in SETTINGS])


def params(dtype: torch.dtype = torch.float64) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [
        nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in ((3, 4), (5,), (), (0,), (2, 2))
    ]


def steps(optimiser: Any, own: list[nn.Parameter], n: int, seed: int = 1) -> None:
    """n steps of random gradients; the last parameter has none at first."""
    generator = torch.Generator().manual_seed(seed)
    for k in range(n):
        for p in own:
            p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)
        if k == 0:
            own[-1].grad = None
        optimiser.step()


def pair(name: str, settings: dict[str, Any], dtype: torch.dtype = torch.float64) -> tuple[Any, Any, list[Any], list[Any]]:
    """kgen's optimiser and torch's, each over parameters of its own; the first two are a group of another rate."""
    ours, theirs = params(dtype), params(dtype)
    made = [
        make([{"params": own[:2], "lr": 3e-2}, {"params": own[2:]}], **settings)
        for make, own in ((getattr(kgen.optim, name), ours), (getattr(torch.optim, name), theirs))
    ]
    return made[0], made[1], ours, theirs


def same(ours: list[Any], theirs: list[Any], near: float = 1e-13) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=near, atol=near)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
def test_steps_counted_on_the_device_are_torch_s(dtype: torch.dtype, near: float) -> None:
    settings: dict[str, Any] = {"lr": 1e-2, "betas": (0.8, 0.95), "weight_decay": 0.1}
    ours, theirs = params(dtype), params(dtype)
    mine = kgen.optim.AdamW(ours, capturable=True, **settings)
    steps(mine, ours, 3)
    again = kgen.optim.AdamW(ours, capturable=True, **settings)
    again.load_state_dict(mine.state_dict())
    steps(again, ours, 3, seed=2)
    torchs = torch.optim.AdamW(theirs, **settings)
    for seed in (1, 2):
        steps(torchs, theirs, 3, seed)
    same(ours, theirs, near)
    assert again.state[ours[0]]["step"] == 6 and again.state[ours[-1]]["step"] == 4


@each_setting
def test_steps_are_torch_s(name: str, settings: dict[str, Any]) -> None:
    a, b, ours, theirs = pair(name, settings)
    steps(a, ours, 4), steps(b, theirs, 4)
    same(ours, theirs)
    assert isinstance(a, getattr(torch.optim, name))


@each_setting
def test_state_dicts_go_both_ways(name: str, settings: dict[str, Any]) -> None:
    a, b, ours, theirs = pair(name, settings)
    steps(a, ours, 3), steps(b, theirs, 3)
    c, d, others, fresh = pair(name, settings)
    for to, start in ((others, theirs), (fresh, ours)):
        for p, q in zip(to, start, strict=True):
            p.data.copy_(q.data)
    assert set(a.state_dict()["param_groups"][0]) == set(b.state_dict()["param_groups"][0])
    c.load_state_dict(copy.deepcopy(b.state_dict()))  # torch's into kgen's
    d.load_state_dict(copy.deepcopy(a.state_dict()))  # and back
    for optimiser, own in ((a, ours), (b, theirs), (c, others), (d, fresh)):
        steps(optimiser, own, 3, seed=2)
    same(others, theirs), same(fresh, ours), same(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_moments_are_kept_in_f32(dtype: torch.dtype) -> None:
    ours = params(dtype)
    a = kgen.optim.AdamW(ours, lr=1e-2)
    steps(a, ours, 3)
    assert {a.state[p]["exp_avg"].dtype for p in ours} == {torch.float32}
    others = [nn.Parameter(p.detach().clone()) for p in ours]
    b = kgen.optim.AdamW(others)
    b.load_state_dict(a.state_dict())
    steps(a, ours, 2), steps(b, others, 2)
    same(others, ours, 0.0)
    c = torch.optim.AdamW([nn.Parameter(p.detach().clone()) for p in ours])
    c.load_state_dict(a.state_dict())  # which rounds them
    steps(c, c.param_groups[0]["params"], 1)


def lion(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, lr: float, b1: float, b2: float, wd: float) -> None:
    """Chen et al. 2023, program 1, in torch."""
    p.mul_(1 - lr * wd).sub_(lr * torch.sign(b1 * m + (1 - b1) * g))
    m.mul_(b2).add_(g, alpha=1 - b2)


def test_lion_is_the_paper_s() -> None:
    ours, theirs = params(), [p.detach() for p in params()]
    a = kgen.optim.Lion(ours, lr=1e-2, betas=(0.8, 0.9), weight_decay=0.1)
    ms = [torch.zeros_like(p) for p in theirs]
    for k in range(3):
        steps(a, ours, 1, seed=k)
        for p, own, m in zip(theirs, ours, ms, strict=True):
            if own.grad is not None:
                lion(p, own.grad, m, 1e-2, 0.8, 0.9, 0.1)
    same([p.detach() for p in ours], theirs)
    b = kgen.optim.Lion(params())
    b.load_state_dict(a.state_dict())
    assert b.param_groups[0]["betas"] == (0.8, 0.9) and set(b.state[b.param_groups[0]["params"][0]]) == {"exp_avg"}


def test_closures_schedules_hooks_groups_and_copies() -> None:
    (w,), seen = params()[:1], []
    a = kgen.optim.SGD([w], lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(a, 1, 0.5)
    a.register_step_post_hook(lambda *_: seen.append(1))

    def closure() -> torch.Tensor:
        a.zero_grad()
        loss = w.square().sum() / 2
        loss.backward()
        return loss

    before = w.detach().clone()
    assert a.step(closure) == before.square().sum() / 2 and seen == [1]
    assert not w.any()
    schedule.step()
    assert a.param_groups[0]["lr"] == 0.5
    x = nn.Parameter(torch.ones(2))
    a.add_param_group({"params": [x], "lr": 2.0})
    x.grad = torch.ones(2)
    a.step()
    assert x.tolist() == [-1.0, -1.0]
    b = copy.deepcopy(a)
    assert b.param_groups[1]["params"][0] is not x and b.state_dict()["param_groups"] == a.state_dict()["param_groups"]


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: kgen.optim.AdamW(params(), amsgrad=True), "amsgrad=True is not supported"),
    (lambda: kgen.optim.AdamW(params(), foreach=True), "foreach=True is not supported: a step is one launch"),
    (lambda: kgen.optim.AdamW([{"params": params(), "fused": True}]), "fused=True is not supported"),
    (lambda: kgen.optim.SGD(params(), differentiable=True), "differentiable=True is not supported: a step of kernels keeps no history"),
    (lambda: kgen.optim.AdamW([torch.zeros(2, dtype=torch.complex64)]), "a parameter is torch.complex64"),
    (lambda: kgen.optim.Lion(params(), betas=(1.0, 0.5)), "out of its range"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_lacking_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(kgen.KgenError, match=message):
        make()


def test_what_cannot_be_loaded_or_stepped_is_refused() -> None:
    ours = params()
    a = kgen.optim.AdamW(ours)
    with pytest.raises(kgen.KgenError, match="amsgrad=True is not supported"):
        a.load_state_dict(torch.optim.AdamW(params(), amsgrad=True).state_dict())
    with pytest.raises(kgen.KgenError, match="amsgrad=True"):
        a.add_param_group({"params": [nn.Parameter(torch.ones(2))], "amsgrad": True})
    assert len(a.param_groups) == 1 and not a.state
    a.load_state_dict(torch.optim.AdamW(params(), foreach=True).state_dict())
    assert a.param_groups[0]["foreach"] is None
    ours[0].grad = torch.zeros(3, 4, dtype=torch.float64).to_sparse()
    with pytest.raises(kgen.KgenError, match="a gradient is sparse"):
        a.step()
    with pytest.raises(ValueError, match="Invalid learning rate"):
        kgen.optim.AdamW(ours, lr=-1.0)
