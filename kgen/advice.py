"""What to write instead: the help of errors that more than one place has, and what people mean who come from elsewhere.

In: what stands in a spec, and the names that it could have meant.  Out: a line of help, "" where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgen.errors import Span
from kgen.resources import bundled
from kgen.types import DTYPES, PACKING, TORCH, WRITTEN, is_int, is_literal, literal_size
from kgen.values import Parameter, Value, closest, did_you_mean

#: Names that dtypes have elsewhere, and what they are here: torch's, with and without what these begin with, and shorter ones.
MEANT = {
    **{of: d.name for d in TORCH.values() for of in (d.torch, d.torch.removeprefix("float8_"), d.torch.replace("float8_", "f8"))},
    **{d.removeprefix("f8").removeprefix("f4"): d for d in WRITTEN if d.startswith(("f8e", "f4e"))},
    "float": "f32", "int": "i64", "double": "f64", "half": "f16", "long": "i64", "fp16": "f16", "fp32": "f32", "fp64": "f64",
    **dict.fromkeys(("f8", "fp8", "float8"), "f8e4m3` or `f8e5m2"), **dict.fromkeys(("f4", "fp4", "float4", "float4_e2m1fn_x2"), "f4e2m1"),
    "int4": "i4", "uint4": "u4",
}  # fmt: skip

#: Functions of other languages, and what they are here.
ELSEWHERE = {
    **{name: f"{dtype}(x)" for name, dtype in MEANT.items()}, "f8": "f8e4m3(x)", "fp8": "f8e4m3(x)", "float8": "f8e4m3(x)",
    "maximum": "max(a, b)", "minimum": "min(a, b)", "fmax": "max(a, b)", "fmin": "min(a, b)", "abs_": "abs(x)", "fabs": "abs(x)",
    "absolute": "abs(x)", "ln": "log(x)", "power": "x^2", "reciprocal": "1 / x", "negative": "-x", "amax": "max[N](x)", "amin": "min[N](x)",
    "average": "mean[N](x)", "variance": "var[N](x)", "arange": "index[N]", "detach": "stop(x)", "gather": "pick[N](x, t)",
    "sum_": "sum[N](x)", "dot": "sum[K](a * b)", "matmul": "sum[K](a * b)", "flip": "x[N = N - 1 - index[N]]",
    "roll": "x[N = (index[N] + 1) % N]", "floor_divide": "a // b", "remainder": "a % b", "fmod": "a % b", "sgn": "sign(x)",
    **dict.fromkeys(("cat", "concat", "concatenate", "stack"), "y[2 = 0] = a` and `y[2 = 1] = b` of `y: T[..., 2*N]"),
    **dict.fromkeys(("chunk", "split", "unbind"), "x[2 = 0]` and `x[2 = 1]` of `x: T[..., 2*N]"),
    **dict.fromkeys(("index_add", "scatter_add"), "sum[S](x if ids == index[V] else 0)"), "take": "pick[N](x, t)",
    "bincount": "sum[S](ids == index[V])",
    "scan": "recur[N](a, b)", "cumulative_sum": "cumsum[N](x)", "pad": "x[N = index[N] - 1 else 0]",
    "swish": "silu(x)", "expit": "sigmoid(x)", "logistic": "sigmoid(x)", "std_dev": "std[N](x)",
}  # fmt: skip

#: Words and constants of other languages, and what stands for them here.
WORDS = {
    **dict.fromkeys(("True", "False", "true", "false"), "bools come from comparisons, as in `1 > 0`"),
    **dict.fromkeys(("None", "null"), "a tensor that a call may leave out says in the header what stands for it: `w: T[N] = 1`"),
    "e": "Euler's number is `exp(1)`",
}


def unknown_function(name: str, known: Iterable[str]) -> str:
    """What to write for a function that does not exist: what it is called here, the bundled spec by that name, a name that is like it."""
    if name in ELSEWHERE:
        return f"write `{ELSEWHERE[name]}`"
    if bundled(name) is not None:
        return f"it is a bundled spec, no function: `kgen show {name} --stage spec` has its formula"
    return did_you_mean(closest(name, list(known)))


def compared_with_nan(op: str, other: str, span: Span) -> tuple[str, Span, str, str]:
    """The error for a comparison of something with NaN, by the operator's name: message, place, label and help."""
    if op == "ne":
        return "everything is unequal to NaN: this is always true", span, "", f"write `not isnan({other})`"
    said = "nothing is equal to NaN" if op == "eq" else "NaN is neither less nor greater than anything"
    return f"{said}: this is never true", span, "", f"write `isnan({other})`"


def made_storable(values: Sequence[Value], v: Value, name: str, stored: str) -> str:
    """What to write where a value cannot be stored as it is: a cast, `//` for whole numbers, or the dtype of what is packed."""
    if stored in PACKING:
        return f"declare `{name}: {PACKING[stored]}[...]`: {stored} are bytes of two each"
    if v.op == "div" and DTYPES.get(stored) is not None and is_int(DTYPES[stored]) and all(is_int(values[a].type) for a in v.args):
        return f"`/` gives a float: whole numbers are divided by `//`, or write `{stored}(...)` around it"
    return f"write `{stored}(...)` around it"


def two_names(dim: str) -> str:
    """What to write where one tensor has a dim twice."""
    if not is_literal(dim):
        return "give the two dims two names"
    return f"give the two dims two names, as in `H*P, W*Q`, and behind the results `where P = {dim}, Q = {dim}`"


def no_such_dim(dim: str, known: Iterable[str]) -> str:
    """What to write where no parameter has a dim by that name: a name that is like it, or of a number a clause that names it."""
    known = list(known)
    if (like := next((k for k in known if k.lower() == dim.lower()), "") or closest(dim, known)) != "":
        return did_you_mean(like)
    if is_literal(dim):
        clause = f"; one of {literal_size(dim)} elements is declared behind the results, `where K = {dim}`" if literal_size(dim) else ""
        return f"dims go by name{clause}"
    return "dims are those of the parameters"


def unknown_size(dim: str, params: Iterable[Parameter]) -> str:
    """What to write for a result's dim whose size no tensor gives: a number of the call, or a clause, may say it."""
    number = next((p.name for p in params if p.dtype == "int" and not p.is_tensor and p.name.lower() == dim.lower()), "")
    name = dim.capitalize()
    if number:
        return f"a number of the call gives a size by a clause behind the results: `{name}`, `where {name} = {number}`"
    return f"a result's sizes follow from the parameters, or a clause behind the results says them: `where {name} = 2 * N`"
