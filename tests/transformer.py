"""A two-layer transformer, once of kgen's kernels and once of PyTorch's functions, trained side by side.

`python -m tests.transformer FILE.svg` trains both and draws their losses: the picture in docs/pytorch.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import kgen

VOCABULARY, WIDTH, HIDDEN, HEADS, LENGTH, BATCH, LAYERS = 64, 64, 128, 4, 32, 16, 2
RATE, DECAY = 3e-3, 1e-2


@dataclass(frozen=True)
class Functions:
    """What the two models do not share: `step(p, g, m, v, t)` is AdamW's, in place."""

    norm: Callable[[int], nn.Module]
    swiglu: Callable[..., torch.Tensor]
    softmax: Callable[..., torch.Tensor]
    cross_entropy: Callable[..., torch.Tensor]
    step: Callable[..., None] | None


def of_torch() -> Functions:
    return Functions(nn.LayerNorm, lambda g, u: F.silu(g) * u, lambda x: x.softmax(-1), lambda x, t: F.cross_entropy(x, t, reduction="none"), None)


def of_kgen() -> Functions:
    layernorm, adamw = kgen.load("layernorm"), kgen.load("adamw")

    def step(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, t: int) -> None:
        adamw(p, g, m, v, t=t, lr=RATE, wd=DECAY)

    return Functions(lambda n: layernorm.module(like=nn.LayerNorm(n)), kgen.load("swiglu"), kgen.load("softmax"), kgen.load("cross_entropy"), step)


class Layer(nn.Module):
    """Attention and a gated feed-forward, each behind a norm."""

    def __init__(self, use: Functions):
        super().__init__()
        self.swiglu, self.softmax = use.swiglu, use.softmax
        self.norm1, self.norm2 = use.norm(WIDTH), use.norm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        mask = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        scores = (q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)).masked_fill(~mask, -math.inf)
        x = x + self.out((self.softmax(scores) @ v).transpose(1, 2).reshape(b, n, WIDTH))
        h = self.norm2(x)
        return x + self.down(self.swiglu(self.gate(h), self.up(h)))


class Transformer(nn.Module):
    """Tokens (batch, length) i64 and the next ones, to the loss of each: (batch, length)."""

    def __init__(self, use: Functions):
        super().__init__()
        self.cross_entropy = use.cross_entropy
        self.embed, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.layers = nn.ModuleList(Layer(use) for _ in range(LAYERS))
        self.norm, self.head = use.norm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.place
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return self.cross_entropy(logits.flatten(0, 1), wanted.flatten()).view(wanted.shape)


def models(dtype: torch.dtype = torch.float32, device: str = "cpu") -> tuple[Transformer, Transformer]:
    """The model of kgen's kernels and that of PyTorch's functions, with the same weights (through one state dict)."""
    torch.manual_seed(0)
    theirs = Transformer(of_torch())
    ours = Transformer(of_kgen())
    ours.load_state_dict(theirs.state_dict())
    return ours.to(device, dtype), theirs.to(device, dtype)


def batches(steps: int, device: str = "cpu") -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Sequences in which each token follows from the two before it, but for some noise: there is something to learn."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for _ in range(steps):
        tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
        noise = torch.rand(BATCH, LENGTH + 1, generator=generator) < 0.1
        for k in range(2, LENGTH + 1):
            tokens[:, k] = torch.where(noise[:, k], tokens[:, k], (tokens[:, k - 1] + 3 * tokens[:, k - 2]) % 16)
        made.append((tokens[:, :-1].contiguous().to(device), tokens[:, 1:].contiguous().to(device)))
    return made


def train(model: Transformer, use: Functions, steps: int, each: Callable[[int], Any] = lambda step: None) -> list[float]:
    """The loss before each of `steps` steps of AdamW."""
    params = list(model.parameters())
    state = [(torch.zeros_like(p, dtype=torch.float32), torch.zeros_like(p, dtype=torch.float32)) for p in params]
    theirs = torch.optim.AdamW(params, lr=RATE, weight_decay=DECAY) if use.step is None else None
    losses = []
    for t, (tokens, wanted) in enumerate(batches(steps, str(params[0].device)), 1):
        loss = model(tokens, wanted).mean()
        losses.append(float(loss.detach()))
        model.zero_grad(set_to_none=True)
        loss.backward()
        if theirs is not None:
            theirs.step()
        else:
            assert use.step is not None
            with torch.no_grad():
                for p, (m, v) in zip(params, state, strict=True):
                    use.step(p, p.grad, m, v, t)
        each(t)
    return losses


def draw(path: str, ours: list[float], theirs: list[float]) -> None:
    """The two curves, and how far apart they are."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "kgen"
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(7, 4.2), sharex=True, height_ratios=(3, 1), layout="constrained")
    above.plot(theirs, linewidth=5, color="#c8d3e0", label="eager PyTorch")
    above.plot(ours, linewidth=1.4, color="#c0392b", label="kgen")
    above.set_ylabel("loss")
    above.legend(frameon=False)
    below.semilogy([max(abs(a - b) / b, 1e-9) for a, b in zip(ours, theirs, strict=True)], color="#555555", linewidth=1)
    below.set_ylabel("relative\ndifference")
    below.set_xlabel("step")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


if __name__ == "__main__":
    one, other = models()
    losses = train(one, of_kgen(), 200), train(other, of_torch(), 200)
    draw(sys.argv[1] if len(sys.argv) > 1 else "training.svg", *losses)
    print("loss at the end:", losses[0][-1], "kgen,", losses[1][-1], "eager; greatest relative difference:",
          max(abs(a - b) / b for a, b in zip(*losses, strict=True)))  # fmt: skip
