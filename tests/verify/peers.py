"""Liger's and QuACK's kernels as candidates, where they are installed: `tests.verify.peers:liger_softmax`.

They are called as `kgen bench` calls them (`kgen/bench/libraries.py`), on dense tensors, in float32 and bf16.  `AS_THEIRS` has the formula
that a library documents where it is another one than the bundled spec's, `PROMISED` what its functions ask of their arguments, which they
refuse by an error otherwise.
"""

from __future__ import annotations

from typing import Any

NORMALIZED = "T({0} * rsqrt(mean[N]({0}^2) + eps)) * w"
GELU_TANH = "0.5 * g * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 * g^3)))"
ENTROPY = """cross_entropy(x: T[..., V], t: i64[...], ignore: int = -100{numbers}) -> loss: {loss}[...]

m    = max[V](x)
s    = log(sum[V](exp(x - m)))
nll  = s - (pick[V](x, t) - m)
loss = 0.0 if t == ignore else {terms}
"""
SMOOTHED = "((1 - smoothing) * nll + smoothing * (s - mean[V](x - m)) if smoothing > 0 else nll) + (z * (s + m)^2 if z != 0 else 0.0)"
#: Liger rounds what it normalizes to the dtype before w scales it ("llama"), and a gate before it meets u; its gelu is the one of tanh; its
#: losses have the dtype of the logits, and are smoothed where `smoothing` is above 0.  QuACK's layer norm takes w and b in float32, its
#: cross-entropy neither smoothing nor the z-loss.
AS_THEIRS = {
    ("liger", "rmsnorm"): f"rmsnorm(x: T[..., N], w: T[N], eps: float = 1e-6) -> y: T[..., N]\n\ny = {NORMALIZED.format('x')}\n",
    ("liger", "add_rmsnorm"): "add_rmsnorm(x: T[..., N], r: T[..., N], w: T[N], eps: float = 1e-6) -> (y: T[..., N], h: T[..., N])\n\n"
    f"h = T(x + r)\ny = {NORMALIZED.format('h')}\n",
    ("liger", "swiglu"): "swiglu(g: T[..., N], u: T[..., N]) -> y: T[..., N]\n\ny = T(silu(g)) * u\n",
    ("liger", "geglu"): f"geglu(g: T[..., N], u: T[..., N]) -> y: T[..., N]\n\ny = T({GELU_TANH}) * u\n",
    ("liger", "relu_squared"): "relu_squared(x: T[..., N]) -> y: T[..., N]\n\ny = relu(x)^2\n",
    ("liger", "cross_entropy"): ENTROPY.format(numbers=", smoothing: float = 0.0, z: float = 0.0", loss="T", terms=SMOOTHED),
    ("quack", "layernorm"): "layernorm(x: T[..., N], w: f32[N], b: f32[N], eps: float = 1e-5) -> y: T[..., N]\n\n"
    "mu = mean[N](x)\nc  = x - mu\ny  = c * rsqrt(mean[N](c^2) + eps) * w + b\n",
    ("quack", "cross_entropy"): ENTROPY.format(numbers="", loss="T32", terms="nll"),
}
#: Liger refuses rows of more than 65,536 elements.  QuACK's tensors have two dims, and rows of whole vectors; classes outside of the row are
#: an error to Liger, and not looked at by QuACK.
LIGER: dict[str, Any] = {"leading": (1, 2), "most": {"N": 65536}}
QUACK: dict[str, Any] = {"leading": (1,), "multiples": {"N": 8}, "most": {"N": 65536}, "examples": 40}
ENTROPIES: dict[str, Any] = {"special": False, "leading": (1,), "most": {"V": 65536}}
PROMISED: dict[tuple[str, str], dict[str, Any]] = {
    **{("liger", spec): LIGER for spec in ("add_rmsnorm", "geglu", "layernorm", "relu_squared", "rmsnorm", "softmax", "swiglu")},
    ("liger", "cross_entropy"): ENTROPIES,
    **{("quack", spec): QUACK for spec in ("layernorm", "rmsnorm", "softmax")},
    ("quack", "cross_entropy"): {**ENTROPIES, "multiples": {"V": 8}, "examples": 40},
}


def candidates(library: str) -> list[Any]:
    """A library's kernels, none where it is not installed."""
    import importlib.util

    from kgen.bench.libraries import PACKAGES
    from tests.verify.correct import Correct

    package, calls = PACKAGES[library]
    if importlib.util.find_spec(package) is None:
        return []
    options = {"device": "cuda", "dtypes": ("f32", "bf16"), "contiguous": True, "every": True, "timeout": 180.0}  # compilers share the machine
    return [
        Correct(
            library, spec, AS_THEIRS.get((library, spec), spec), f"tests.verify.peers:{library}_{spec}",
            options=options | PROMISED.get((library, spec), {}),
        )
        for spec in calls
    ]  # fmt: skip


def quack_cross_entropy(x: Any, t: Any, ignore: int) -> Any:
    """QuACK's cross-entropy, as the table calls it where there is neither smoothing nor a z-loss."""
    from kgen.bench.libraries import QUACK

    return QUACK["cross_entropy"](x, t, ignore, 0.0, 0.0)


def __getattr__(name: str) -> Any:
    library, _, spec = name.partition("_")
    from kgen.bench.libraries import PACKAGES

    if library not in PACKAGES or spec not in PACKAGES[library][1]:
        raise AttributeError(name)
    return PACKAGES[library][1][spec]
