"""The peers that a kernel is timed beside: how each is called, as data.

A table has, for a bundled spec's name, a function of that spec's parameters (by name) that returns its results, in order.  What a user's
own spec of that name computes need not be the same: results are compared before a peer is timed.

* eager    the faster of the next two, on each size
* formula  the formula written out in torch, operator by operator
* torch    torch's own function, where there is one
* compile  torch.compile of torch's own function, else of the formula
* liger, quack, helion   those packages, where they are installed
"""

from __future__ import annotations

import importlib.util
import inspect
import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F

from kgen.bench.library import TIMED, group_int8, scanned, turned, wide
from kgen.bench.peers import written_out
from kgen.check import Kernel
from kgen.runtime.coded import packed

Call = Callable[..., Any]


def _adamw(p: Any, g: Any, m: Any, v: Any, t: int, lr: float, b1: float, b2: float, eps: float, wd: float) -> Any:
    """torch.optim.AdamW(fused=True)'s step: its one operator."""
    step = torch.full((), float(t), device=p.device)
    torch._fused_adamw_([p], [g], [m], [v], [], [step], lr=lr, beta1=b1, beta2=b2, weight_decay=wd, eps=eps, amsgrad=False, maximize=False)
    return p, m, v


def _cross_entropy(x: Any, t: Any, ignore: int, smoothing: float, z: float) -> Any:
    return F.cross_entropy(x, t, reduction="none", ignore_index=ignore, label_smoothing=smoothing)


def _group_norm(x: Any, w: Any, b: Any, eps: float) -> Any:
    return F.group_norm(x.flatten(1, 2), x.shape[1], w.flatten(), b.flatten(), eps).view_as(x)


def _add_rmsnorm(x: Any, r: Any, w: Any, eps: float) -> Any:
    h = x + r
    return F.rms_norm(h, w.shape, w, eps), h


def _batchnorm_stats(x: Any) -> Any:
    v, mu = torch.var_mean(x, dim=(0, 2), correction=0)
    return mu, v


def _histogram(x: Any, counts: Any, low: float, width: float) -> Any:
    at = torch.floor((x - low) / width).nan_to_num(0, posinf=-1).long()  # NaN as an integer is 0
    return counts + torch.bincount(at[(at >= 0) & (at < len(counts))], minlength=len(counts))


def _segment_mean(x: Any, ids: Any, default: Any) -> Any:
    n = torch.bincount(ids, minlength=len(default))[:, None]
    return torch.zeros_like(default).index_add(0, ids, x).div(n).where(n > 0, default)


def _laplacian(x: Any) -> Any:
    p = F.pad(x, (1, 1, 1, 1))
    return p[..., :-2, 1:-1] + p[..., 2:, 1:-1] + p[..., 1:-1, :-2] + p[..., 1:-1, 2:] - 4 * x


def _rope_interleaved(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)


def _swiglu_packed(x: Any) -> Any:
    g, u = x.chunk(2, -1)
    return F.silu(g) * u


def _min_p(x: Any, p: float) -> Any:
    q = torch.softmax(x, -1)
    return x.where(q >= p * q.amax(-1, keepdim=True), -math.inf)


def _top_p(x: Any, p: float) -> Any:
    q, order = torch.softmax(wide(x), -1).sort(dim=-1, descending=True)
    return x.where(torch.zeros_like(x, dtype=torch.bool).scatter(-1, order, q.cumsum(-1) - q < p), -math.inf)


TORCH: dict[str, Call] = TIMED | {
    "add": lambda a, b: a + b,
    "add_rmsnorm": _add_rmsnorm,
    "adamw": _adamw,
    "argmax": lambda x: torch.argmax(x, -1),
    "batchnorm_stats": _batchnorm_stats,
    "bias_gelu": lambda x, b: F.gelu(x + b),
    "causal_conv4": lambda x, w, b: F.silu(F.conv1d(F.pad(x.flatten(0, -3), (3, 0)), w[:, None], b, groups=len(b))).view_as(x),
    "clip_by_value": lambda x, lo, hi: torch.clamp(x, lo, hi),
    "cosine_similarity": lambda x, y, eps: F.cosine_similarity(x, y, -1, eps),
    "cross_entropy": _cross_entropy,
    "cumsum": lambda x: torch.cumsum(x, -1),
    "cumulative_mean": lambda x: torch.cumsum(x, -1) / torch.arange(1, x.shape[-1] + 1, device=x.device),
    "elu": lambda x, alpha: F.elu(x, alpha),
    "embedding": lambda w, ids: F.embedding(ids, w),
    "frobenius": lambda x: torch.linalg.vector_norm(x),
    "geglu": lambda g, u: F.gelu(g) * u,
    "gelu": lambda x: F.gelu(x),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "group_int8": lambda x: group_int8(x.float()),
    "groupnorm": _group_norm,
    "hardswish": lambda x: F.hardswish(x),
    "histogram": _histogram,
    "huber": lambda x, y, delta: F.huber_loss(x, y, delta=delta),
    "linear_recurrence": lambda x, g: scanned(g.sigmoid(), (1 - g.sigmoid()) * x, -2),
    "kl_div": lambda q, p: F.kl_div(q, p, reduction="none").sum(-1),
    "l2_normalize": lambda x, eps: F.normalize(x, dim=-1, eps=eps),
    "laplacian": _laplacian,
    "layernorm": lambda x, w, b, eps: F.layer_norm(x, w.shape, w, b, eps),
    "lerp_ema": lambda ema, x, w: ema.lerp_(x.to(ema.dtype), w),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "min_p_mask": _min_p,
    "mish": lambda x: F.mish(x),
    "mse": lambda x, y: F.mse_loss(x, y),
    "ragged_mean": lambda x, offsets: torch.segment_reduce(x, "mean", lengths=offsets.diff(), initial=0),
    "relu_squared": lambda x: F.relu(x).square(),
    "rmsnorm": lambda x, w, eps: F.rms_norm(x, w.shape, w, eps),
    "rope": turned,
    "rope_interleaved": _rope_interleaved,
    "segment_mean": _segment_mean,
    "silu": lambda x: F.silu(x),
    "softmax": lambda x: F.softmax(x, -1),
    "softplus": lambda x: F.softplus(x),
    "sum_of_squares_cols": lambda x: torch.sum(x * x, 0),
    "swiglu": lambda g, u: F.silu(g) * u,
    "swiglu_packed": _swiglu_packed,
    "top_p_mask": _top_p,
    "topk": lambda x: torch.topk(x, 8),
    "topk_mask": lambda x, k: x.where(torch.zeros_like(x, dtype=torch.bool).scatter(-1, x.topk(k).indices, True), -math.inf),
    "triplet_margin": lambda a, p, n, margin, eps: F.triplet_margin_loss(a, p, n, margin=margin, eps=eps),
    "variance": lambda x: torch.var(x, -1),
}


def _liger(function: str) -> Call:
    return getattr(import_module("liger_kernel.ops"), function).apply


def _liger_cross_entropy(x: Any, t: Any, ignore: int, smoothing: float, z: float) -> Any:
    return _liger("LigerCrossEntropyFunction")(x, t, None, ignore, z, smoothing, "none")[0]


LIGER: dict[str, Call] = {
    "add_rmsnorm": lambda x, r, w, eps: _liger("LigerFusedAddRMSNormFunction")(x, r, w, eps),
    "cross_entropy": _liger_cross_entropy,
    "dyt": lambda x, alpha, w, b: _liger("LigerDyTFunction")(x, alpha, w, b),
    "geglu": lambda g, u: _liger("LigerGELUMulFunction")(g, u),
    "layernorm": lambda x, w, b, eps: _liger("LigerLayerNormFunction")(x, w, b, eps),
    "relu_squared": lambda x: _liger("LigerReLUSquaredFunction")(x),
    "rmsnorm": lambda x, w, eps: _liger("LigerRMSNormFunction")(x, w, eps, 0.0, "llama", False),
    "softmax": lambda x: _liger("LigerSoftmaxFunction")(x),
    "swiglu": lambda g, u: _liger("LigerSiLUMulFunction")(g, u),
}


def _quack(module: str, function: str) -> Call:
    """A function of QuACK's: the one with gradients, where they are wanted and there is one."""
    found = import_module(f"quack.{module}")
    return getattr(found, function if torch.is_grad_enabled() else f"{function}_fwd", None) or getattr(found, f"{function}_fwd")


def _quack_rmsnorm(x: Any, w: Any, eps: float) -> Any:
    found = _quack("rmsnorm", "rmsnorm")(x, w, eps=eps)
    return found[0] if isinstance(found, tuple) else found


def _quack_cross_entropy(x: Any, t: Any, ignore: int, smoothing: float, z: float) -> Any:
    named = {"reduction": "none"} if torch.is_grad_enabled() else {}
    return _quack("cross_entropy", "cross_entropy")(x, t, ignore_index=ignore, **named)


QUACK: dict[str, Call] = {
    "cross_entropy": _quack_cross_entropy,
    "layernorm": lambda x, w, b, eps: _quack("rmsnorm", "layernorm")(x, w, b, eps),
    "rmsnorm": _quack_rmsnorm,
    "softmax": lambda x: _quack("softmax", "softmax")(x),
}

#: Parameters that a peer wants in f32, whatever the others' dtype; they are made so before it is timed.
WIDENED = {("quack", "layernorm"): ("w", "b")}


def _helion(name: str) -> Call:
    return getattr(import_module("kgen.bench.helion_kernels"), name)


HELION: dict[str, Call] = {
    "gelu_tanh": lambda x: _helion("gelu_tanh")(x.view(-1)).view_as(x),
    "layernorm": lambda x, w, b, eps: _helion("layernorm")(x, w, b, eps),
    "rmsnorm": lambda x, w, eps: _helion("rmsnorm")(x, w, eps),
    "softmax": lambda x: _helion("softmax")(x),
    "swiglu": lambda g, u: _helion("swiglu")(g.view(-1), u.view(-1)).view_as(g),
}

#: Packages beyond torch: what has to be importable, and the table.
PACKAGES = {"liger": ("liger_kernel", LIGER), "quack": ("quack", QUACK), "helion": ("helion", HELION)}
PEERS = ("eager", "formula", "torch", "compile", *PACKAGES)
#: Those that are timed where none is named.
USUAL = ("eager", "compile", *PACKAGES)


def lacks(kernel: Kernel, peer: str) -> str:
    """Why a peer cannot be timed beside a kernel, before any call; "" where it can."""
    if peer in ("eager", "formula", "compile"):
        return ""
    package, table = PACKAGES.get(peer, ("torch", TORCH))
    if importlib.util.find_spec(package) is None:
        return f"{package} is not installed"
    return "" if _entry(kernel, table) else f"{peer} has no function for {kernel.name}"


def ways(kernel: Kernel, peer: str) -> list[str]:
    """What a peer stands for on a kernel: of eager PyTorch the formula written out, and torch's own function where there is one."""
    if peer != "eager":
        return [peer]
    return ["formula"] if lacks(kernel, "torch") else ["formula", "torch"]


def _entry(kernel: Kernel, table: dict[str, Call]) -> Call | None:
    """A table's function for a kernel, where it takes the kernel's parameters."""
    found = table.get(kernel.name)
    return found if found and list(inspect.signature(found).parameters) == [p.name for p in kernel.params] else None


def prepared(kernel: Kernel, peer: str, given: dict[str, Any]) -> Call:
    """What a peer calls, on `given` (by name); it takes no arguments.  Raises what its library raises."""
    names = [p.name for p in kernel.params]
    for name in WIDENED.get((peer, kernel.name), ()):
        given = given | {name: given[name].float()}
    given = {name: x.view(torch.uint8) if packed(getattr(x, "dtype", None)) else x for name, x in given.items()}
    if peer in PACKAGES:
        call = _entry(kernel, PACKAGES[peer][1])
        assert call is not None
        return partial(call, **given)
    if peer == "formula":
        function = written_out(kernel, given)
    else:
        function = _entry(kernel, TORCH) if peer == "torch" else written(kernel, given)
    if peer == "compile":
        function = compiled(function)
    return partial(function, *(given[name] for name in names))


def compiled(function: Any) -> Any:
    """A function under torch.compile, from a clean start; Python numbers are constants to it, as if they were written in the formula."""
    torch._dynamo.reset()
    torch._dynamo.config.specialize_float = True
    return torch.compile(function)


def written(kernel: Kernel, given: dict[str, Any]) -> Any:
    """What a user would compile, of the kernel's parameters in order: torch's own function, else the formula."""
    return written_out(kernel, given) if is_formula(kernel, "compile") else _entry(kernel, TORCH)


def is_formula(kernel: Kernel, peer: str) -> bool:
    """Whether a peer runs the kernel's own formula, so that its results need no look; what is in place is compiled as the formula."""
    return peer == "formula" or peer == "compile" and (_entry(kernel, TORCH) is None or any(r.state for r in kernel.results))
