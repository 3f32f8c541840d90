"""A GPT-2 of any size, once of torch's functions and once with kgen's kernels between the same matrix products.

In: `Sizes`.  Out: two modules with the same parameters by the same names, tokens and the next ones to their mean loss.  The first is
what people write, in f32 for torch.autocast to bf16.  The other computes the same in the same dtypes, but says so itself: matrices are
bf16 and their masters are the optimiser's (`Optimiser`), the residual stream, biases, norms' parameters and the loss are f32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from kgen.errors import KgenError
from kgen.runtime.kernel import load, loads

#: What training does between the matrix products, besides the bundled cross_entropy_dx and adamw.
SPECS = {
    "layernorm": """\
# LayerNorm of the f32 residual stream for a layer that takes bf16.
layernorm(x: f32[..., N], w: f32[N], b: f32[N], eps: float = 1e-5) -> y: bf16[..., N]

c = x - mean[N](x)
y = c * rsqrt(mean[N](c^2) + eps) * w + b
""",
    "add_layernorm": """\
# What a layer gives (h, without its bias) added to the residual stream x, and the LayerNorm of the sum for the next one.
add_layernorm(x: f32[..., N], h: bf16[..., N], bias: f32[N], w: f32[N], b: f32[N], eps: float = 1e-5) -> (s: f32[..., N], y: bf16[..., N])

s = x + (h + bias)
c = s - mean[N](s)
y = c * rsqrt(mean[N](c^2) + eps) * w + b
""",
    "bias_gelu": """\
# A linear layer's bias and its GELU by tanh.
bias_gelu(x: bf16[..., N], b: f32[N]) -> y: bf16[..., N]

y = gelu_tanh(x + b)
""",
    "adamw_masters": """\
# A step of AdamW on f32 masters p of bf16 parameters q, whose gradient g is.
adamw_masters(p: f32[...], g: bf16[...], m: f32[...], v: f32[...], t: int, lr: float, b1: float = 0.9,
              b2: float = 0.999, eps: float = 1e-8, wd: float = 1e-2) -> (p': f32[...], m': f32[...], v': f32[...], q: bf16[...])

m' = b1 * m + (1 - b1) * g
v' = b2 * v + (1 - b2) * g^2
u  = (m' / (1 - b1^t)) / (sqrt(v' / (1 - b2^t)) + eps)
p' = p - lr * (u + wd * p)
q  = p'
""",
}
RATE, BETAS, DECAY = 3e-4, (0.9, 0.95), 0.1
#: In so many pieces, one after the other, are the logits made: no more of them are there at once.
PIECES = 4


class Sizes(NamedTuple):
    """GPT-2 small's shape: a table of 50,257 tokens is padded to a multiple of 64, so that its rows and columns are aligned."""

    layers: int = 12
    batch: int = 8
    width: int = 768
    heads: int = 12
    length: int = 1024
    vocabulary: int = 50_304


TINY = Sizes(2, 2, 64, 2, 32, 256)  # for a machine without a GPU


def sizes_of(text: str, device: str) -> Sizes:
    """The sizes of "12x8", layers and sequences of a batch; on a CPU of a tiny width.  Raises `KgenError` for what is no such text."""
    parts = text.split("x")
    if len(parts) != 2 or not all(p.isdigit() and 0 < int(p) <= 1024 for p in parts):
        raise KgenError(f"{text!r} is no size of a model", help="write LAYERSxBATCH: --block 12x8")
    return (Sizes() if device == "cuda" else TINY)._replace(layers=int(parts[0]), batch=int(parts[1]))


@dataclass(frozen=True)
class Kernels:
    """kgen's kernels of a model."""

    layernorm: Any
    add_layernorm: Any
    bias_gelu: Any
    adamw_masters: Any
    adamw: Any
    cross_entropy_dx: Any


@cache
def kernels() -> Kernels:
    return Kernels(
        **{name: loads(text, f"{name}.k") for name, text in SPECS.items()}, adamw=load("adamw"), cross_entropy_dx=load("cross_entropy_dx")
    )


class Layer(nn.Module):
    """Attention and a feed-forward, each behind a norm, with torch's functions: x to x."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.heads, n = sizes.heads, sizes.width
        self.norm1, self.norm2 = nn.LayerNorm(n), nn.LayerNorm(n)
        self.qkv, self.out, self.up, self.down = nn.Linear(n, 3 * n), nn.Linear(n, n), nn.Linear(n, 4 * n), nn.Linear(4 * n, n)

    def attend(self, y: torch.Tensor) -> torch.Tensor:
        """Causal attention, before its output projection."""
        b, t, n = y.shape
        q, k, v = (z.view(b, t, self.heads, n // self.heads).transpose(1, 2) for z in self.qkv(y).split(n, dim=2))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, n)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.out(self.attend(self.norm1(x)))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    """Tokens (batch, length) and the next ones to their mean loss, with torch's functions."""

    layer: type[Layer] = Layer

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.embed, self.place = nn.Embedding(sizes.vocabulary, sizes.width), nn.Embedding(sizes.length, sizes.width)
        self.layers = nn.ModuleList(self.layer(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        for name, p in self.named_parameters():
            if p.dim() == 2:  # GPT-2's: what is added to the residual stream begins smaller
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * sizes.layers) if name.endswith(("out.weight", "down.weight")) else 1.0))
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.place.weight
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(F.linear(self.norm(x), self.embed.weight).flatten(0, 1), wanted.flatten())


class FusedLayer(Layer):
    """The same with kgen's kernels (`use`): the residual stream x and its norm y, of f32 and bf16, to those behind the layer."""

    def __init__(self, sizes: Sizes):
        super().__init__(sizes)
        self.use = kernels()

    def fused(self, x: torch.Tensor, y: torch.Tensor, behind: nn.LayerNorm) -> tuple[torch.Tensor, torch.Tensor]:
        use = self.use
        h = F.linear(self.attend(y), self.out.weight)
        x, y = use.add_layernorm(x, h, self.out.bias, self.norm2.weight, self.norm2.bias)
        h = F.linear(use.bias_gelu(F.linear(y, self.up.weight), self.up.bias), self.down.weight)
        return use.add_layernorm(x, h, self.down.bias, behind.weight, behind.bias)


class FusedModel(Model):
    """The same with kgen's kernels.  `masters` are the f32 values of the bf16 parameters, by name."""

    layer = FusedLayer

    def __init__(self, sizes: Sizes, of: Model, device: str):
        """The weights are those of another model."""
        super().__init__(sizes)
        self.load_state_dict(of.state_dict())
        self.to(device)
        self.use, self.masters = kernels(), dict[str, torch.Tensor]()
        for name, p in self.named_parameters():
            if p.dim() == 2 and name != "place.weight" or name.endswith("qkv.bias"):
                self.masters[name] = p.data
                p.data = p.data.to(torch.bfloat16)

    def forward(self, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.place.weight
        layers: Any = self.layers
        first, *others = [layer.norm1 for layer in layers]
        y = self.use.layernorm(x, first.weight, first.bias)
        for layer, behind in zip(layers, [*others, self.norm], strict=True):
            x, y = layer.fused(x, y, behind)
        return LinearLoss.apply(y.flatten(0, 1), self.embed.weight, wanted.flatten(), self.use.cross_entropy_dx)


class LinearLoss(torch.autograd.Function):
    """The mean cross-entropy of the logits y w' with classes t: rows y (n, width), the table w (vocabulary, width), t (n).

    The logits are made piece by piece, and each piece becomes its own gradient where it lies; that gradient is of the loss itself, from
    which `backward` must start (Hsu et al. 2024, Liger Kernel).
    """

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, w: torch.Tensor, t: torch.Tensor, cross_entropy_dx: Any) -> torch.Tensor:
        losses, dys, dw = [], [], None
        for rows, classes in zip(y.chunk(PIECES), t.chunk(PIECES), strict=True):
            logits = rows @ w.t()
            out = None if torch.compiler.is_compiling() else (torch.empty(len(rows), device=y.device), logits)
            loss, dx = cross_entropy_dx(logits, classes, scale=1.0 / len(y), out=out)
            losses.append(loss.sum())
            dys.append(dx @ w)
            dw = dx.t() @ rows if dw is None else dw.addmm_(dx.t(), rows)
            del logits, dx
        ctx.save_for_backward(torch.cat(dys), dw)
        return torch.stack(losses).sum() / len(y)

    @staticmethod
    def backward(ctx: Any, of_loss: torch.Tensor) -> Any:
        dy, dw = ctx.saved_tensors
        return dy, dw, None, None


class Optimiser:
    """AdamW over a `FusedModel`'s parameters: one launch for those with masters, one for the others."""

    def __init__(self, model: FusedModel):
        found = list(model.named_parameters())
        self.halves = [p for name, p in found if name in model.masters]
        self.masters = [model.masters[name] for name, p in found if name in model.masters]
        self.wholes = [p for name, p in found if name not in model.masters]
        self.moments = [[[torch.zeros_like(p) for p in of] for _ in BETAS] for of in (self.masters, self.wholes)]
        self.t = 0

    @torch.no_grad()
    def step(self) -> None:
        self.t += 1
        numbers = {"t": self.t, "lr": RATE, "b1": BETAS[0], "b2": BETAS[1], "wd": DECAY}
        (m, v), (m2, v2) = self.moments
        kernels().adamw_masters.foreach(self.masters, [p.grad for p in self.halves], m, v, **numbers, out=[p.detach() for p in self.halves])
        kernels().adamw.foreach(self.wholes, [p.grad for p in self.wholes], m2, v2, **numbers)

    def zero_grad(self) -> None:
        for p in (*self.halves, *self.wholes):
            p.grad = None


def batches(sizes: Sizes, count: int, device: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of tokens and the next ones: rare ones and frequent ones as in a language, half of which follow from the one before."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        shape = sizes.batch, sizes.length + 1
        tokens = (sizes.vocabulary ** torch.rand(shape, generator=generator)).long() - 1
        follows = torch.rand(shape, generator=generator) < 0.5
        for k in range(1, sizes.length + 1):
            tokens[:, k] = torch.where(follows[:, k], (7 * tokens[:, k - 1] + 11) % sizes.vocabulary, tokens[:, k])
        yield tokens[:, :-1].contiguous().to(device), tokens[:, 1:].contiguous().to(device)
