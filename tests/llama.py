"""A Llama of two layers, as a library would write it: a class of its own for its norm, gated feed-forwards, rotary positions.

`python -m tests.llama [device]` trains it plain, patched and compiled, and prints a table of times; made for a GPU.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import kgen


@dataclass(frozen=True)
class Shape:
    vocabulary: int = 64
    width: int = 32
    hidden: int = 48
    heads: int = 2
    length: int = 16
    batch: int = 4
    layers: int = 2


SMALL = Shape()
LARGE = Shape(32_000, 2048, 5632, 16, 2048, 4)


class RMSNorm(nn.Module):
    """As transformers' LlamaRMSNorm is written: computed in f32, rounded, then scaled."""

    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.variance_epsilon = eps

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        dtype = h.dtype
        h = h.to(torch.float32) if dtype != torch.float64 else h
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * h.to(dtype)


class Layer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.heads = shape.heads
        self.norm1, self.norm2 = RMSNorm(shape.width), RMSNorm(shape.width)
        self.qkv, self.out = nn.Linear(shape.width, 3 * shape.width, bias=False), nn.Linear(shape.width, shape.width, bias=False)
        self.gate, self.up = nn.Linear(shape.width, shape.hidden, bias=False), nn.Linear(shape.width, shape.hidden, bias=False)
        self.down, self.act = nn.Linear(shape.hidden, shape.width, bias=False), nn.SiLU()

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        b, n, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, width))
        h = self.norm2(x)
        return x + self.down(self.act(self.gate(h)) * self.up(h))


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Llama(nn.Module):
    """Tokens (batch, length) and the next ones, to the mean loss; the embedding is the head's weight too."""

    def __init__(self, shape: Shape = SMALL):
        super().__init__()
        self.embed = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm, self.head = RMSNorm(shape.width), nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.02)
        self.loss = nn.CrossEntropyLoss()
        half = shape.width // shape.heads // 2
        angles = torch.arange(shape.length)[:, None] / 10_000 ** (torch.arange(half) / half)
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)

    def forward(self, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.loss(self.head(self.norm(x)).flatten(0, 1), wanted.flatten())


def model(shape: Shape = SMALL, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Llama:
    """The same weights each time, whatever the dtype."""
    torch.manual_seed(0)
    return Llama(shape).to(device, dtype)


def batches(shape: Shape, steps: int, device: str = "cpu") -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Sequences in which each token follows from the two before it, but for some noise: there is something to learn."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for _ in range(steps):
        tokens = torch.randint(0, shape.vocabulary, (shape.batch, shape.length + 1), generator=generator)
        noise = torch.rand(tokens.shape, generator=generator) < 0.1
        for k in range(2, shape.length + 1):
            tokens[:, k] = torch.where(noise[:, k], tokens[:, k], (tokens[:, k - 1] + 3 * tokens[:, k - 2]) % 16)
        made.append((tokens[:, :-1].contiguous().to(device), tokens[:, 1:].contiguous().to(device)))
    return made


def train(llama: Any, optimiser: torch.optim.Optimizer, data: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    """The loss before each step."""
    losses = []
    for tokens, wanted in data:
        optimiser.zero_grad(set_to_none=True)
        loss = llama(tokens, wanted)
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    return [float(x) for x in losses]


# ------------------------------------------------------------------------------------------------------------ on a GPU


def milliseconds(run: Callable[[], Any], times: int = 15) -> float:
    """The median time of a call on the GPU, after some that are not counted."""
    for _ in range(4):
        run()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    for start, end in marks:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) for start, end in marks)[times // 2]


def timed(llama: Any, optimiser: Any, tokens: torch.Tensor, wanted: torch.Tensor) -> tuple[float, float, float, float]:
    """Milliseconds of a forward, of forward and backward, of an optimiser's step, and of all three."""

    def both() -> None:
        optimiser.zero_grad(set_to_none=True)
        llama(tokens, wanted).backward()

    def forward() -> None:
        with torch.no_grad():
            llama(tokens, wanted)

    def whole() -> None:
        both()
        optimiser.step()

    return milliseconds(forward), milliseconds(both), milliseconds(optimiser.step), milliseconds(whole)


def main(device: str = "cuda", dtype: torch.dtype = torch.bfloat16, shape: Shape = LARGE) -> None:
    """Print the table: plain, patched, compiled, and compiled with the norms and the loss patched."""
    start = model(shape, dtype, device)
    data = batches(shape, 12, device)
    exact = copy.deepcopy(start).float()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {dtype}, {shape}")
    print(f"loss of the first batch in float32: {float(exact(*data[0]).detach()):.6f}")
    del exact
    print(kgen.patch(copy.deepcopy(start)))
    print(f"{'ms':32}{'forward':>9}{'fwd+bwd':>9}{'step':>9}{'all':>9}{'MiB':>8}{'first':>11}{'last':>11}")
    for name, patched, compiled, optimiser in (
        ("plain, AdamW", False, False, torch.optim.AdamW),
        ("plain, AdamW(fused=True)", False, False, partial(torch.optim.AdamW, fused=True)),
        ("patched, kgen's AdamW", True, False, kgen.optim.AdamW),
        ("compiled, AdamW(fused=True)", False, True, partial(torch.optim.AdamW, fused=True)),
        ("compiled, norms and loss patched", True, True, kgen.optim.AdamW),
    ):
        torch._dynamo.reset()
        llama = copy.deepcopy(start)
        if patched:
            kgen.patch(llama, skip=(nn.SiLU,) if compiled else ())
        run = torch.compile(llama) if compiled else llama
        own = optimiser(llama.parameters())
        losses = train(run, own, data)
        torch.cuda.reset_peak_memory_stats()
        times = timed(run, own, *data[0])
        most = torch.cuda.max_memory_allocated() >> 20
        print(f"{name:32}" + "".join(f"{t:>9.3f}" for t in times) + f"{most:>8}{losses[0]:>11.6f}{losses[-1]:>11.6f}", flush=True)
        del llama, run, own


if __name__ == "__main__":
    main(*sys.argv[1:2])
