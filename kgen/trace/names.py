"""torch's names: one row for each function or method that a traced function may call.

A row has the names (`exp` stands for `torch.exp` and `Tensor.exp`; `torch.`, `F.`, `special.`, `linalg.` and `.` for one of
them alone), torch's parameters, and what it computes in kgen's own language.  Of several texts the first is taken whose
words are all given; a dict is keyed by the value of the parameter `by`.  A parameter that no text mentions must have its
default.  `dim`, `keepdim`, `dtype` and `reduction` are torch's: `D` are the dims that `dim` names, and an operand with
`dtype` is cast first.  `reduces` marks rows whose result lacks D.
"""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from kgen import syntax
from kgen.syntax import Apply, Expr, Helper, Name


@dataclass(frozen=True)
class Row:
    names: str
    params: str
    texts: tuple[str, ...] | dict[Any, str]
    by: str = ""
    reduces: bool = False
    floats: bool = False  # torch takes floats alone
    same: bool = False  # the result has the first operand's dtype, or torch refuses
    shares: bool = False  # torch may return the operand itself
    rest: bool = False  # the last parameter may be given as several arguments

    @cached_property
    def signature(self) -> inspect.Signature:
        made = ast.parse(f"def f({self.params}): pass").body[0]
        assert isinstance(made, ast.FunctionDef)
        arguments = made.args.args
        defaults = [ast.literal_eval(d) for d in made.args.defaults]
        first = len(arguments) - len(defaults)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([
            inspect.Parameter(a.arg, kind, default=defaults[k - first] if k >= first else inspect.Parameter.empty)
            for k, a in enumerate(arguments)
        ])  # fmt: skip

    @property
    def all_texts(self) -> tuple[str, ...]:
        return tuple(self.texts.values()) if isinstance(self.texts, dict) else self.texts


#: What torch computes where a tensor's exponent is one of these numbers: of -inf and -0 as a root does, not as a power.
ROOTS = {0.5: "sqrt", -0.5: "rsqrt"}
#: In the texts of a row `by` some argument: of any other value, and of no constant.
OTHER = "other"


def row(names: str, params: str, *texts: str, **marks: Any) -> Row:
    return Row(names, params, texts, **marks)


@lru_cache(maxsize=512)
def formula(text: str, params: tuple[str, ...]) -> Expr:
    """A row's text as a tree."""
    (helper,) = syntax.parse(f"row[D]({', '.join(params)}) = {text}", "names.py").statements
    assert isinstance(helper, Helper)
    return helper.body


@lru_cache(maxsize=512)
def uses(text: str, params: tuple[str, ...]) -> dict[str, int]:
    """How often a row's text mentions each name."""
    found: dict[str, int] = {}
    for node in syntax.postorder(formula(text, params)):
        for name in [node.name] if isinstance(node, Name) else [d.name for d in node.dims or ()] if isinstance(node, Apply) else []:
            found[name] = found.get(name, 0) + 1
    return found


_SAME = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "sigmoid erf erfc erfinv lgamma digamma abs sign floor ceil trunc isnan isinf isfinite signbit relu"
)
_ALIASES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "abs": "absolute", "sign": "sgn", "trunc": "fix", "sigmoid": "special.expit F.sigmoid", "tanh": "F.tanh",
    "lgamma": "special.gammaln", "digamma": "special.digamma special.psi", "erf": "special.erf", "erfc": "special.erfc",
    "erfinv": "special.erfinv", "exp2": "special.exp2", "expm1": "special.expm1", "log1p": "special.log1p",
}  # fmt: skip
_COMPARE = {"eq": "==", "ne not_equal": "!=", "lt less": "<", "le less_equal": "<=", "gt greater": ">", "ge greater_equal": ">="}
CASTS = {"float": "f32", "double": "f64", "half": "f16", "bfloat16": "bf16", "int": "i32", "long": "i64", "short": "i16",
          "char": "i8", "byte": "u8", "bool": "bool"}  # fmt: skip
_OLD = "size_average=None, reduce=None"
_REDUCE = "input, dim=None, keepdim=False"
_NORMAL = "center[D](input) * rsqrt(mean[D](center[D](input)^2) + eps)"
_AFFINE = (f"{_NORMAL} * weight + bias", f"{_NORMAL} * weight", f"{_NORMAL} + bias", _NORMAL)

ROWS: tuple[Row, ...] = (
    *(row(f"{name} {_ALIASES.get(name, '')}", "input", f"{name}(input)") for name in _SAME.split()),
    *(row(names, "input, other", f"input {symbol} other") for names, symbol in _COMPARE.items()),
    *(row(f".{name}", "input", f"{dtype}(input)", shares=True) for name, dtype in CASTS.items()),
    row("neg negative", "input", "-input"),
    row("positive", "input", "+input", shares=True),
    row("square", "input", "input^2"),
    row("reciprocal", "input", "1 / input"),
    row("frac", "input", "input - trunc(input)", floats=True),
    row("round special.round", "input, decimals=0", "round(input)"),
    row("clone", "input", "input"),
    row(".contiguous", "input", "input", shares=True),
    row("detach", "input", "stop(input)", shares=True),
    # two operands and more
    row("add", "input, other, alpha=None", "input + alpha * other", "input + other"),
    row("sub subtract", "input, other, alpha=None", "input - alpha * other", "input - other"),
    row("mul multiply", "input, other", "input * other"),
    Row("div divide", "input, other, rounding_mode=None", {None: "input / other", "floor": "input // other"}, by="rounding_mode"),
    row("true_divide", "input, other", "input / other"),
    row("floor_divide", "input, other", "input // other"),
    row("remainder", "input, other", "input % other"),
    Row("pow", "input, exponent", {p: f"{f}(input)" for p, f in ROOTS.items()} | {OTHER: "input^exponent"}, by="exponent"),
    row("maximum", "input, other", "max(input, other)"),
    row("minimum", "input, other", "min(input, other)"),
    row("clamp clip", "input, min=None, max=None", "clamp(input, min, max)", "lower(input, min)", "upper(input, max)"),
    row("clamp_min", "input, min", "lower(input, min)"),
    row("clamp_max", "input, max", "upper(input, max)"),
    row("torch.where", "condition, input, other", "input if condition else other"),
    row(".where", "input, condition, other", "input if condition else other"),
    row("atan2 arctan2", "input, other", "atan2(input, other)"),
    row("hypot", "input, other", "hypot(input, other)"),
    row("copysign", "input, other", "copysign(input, other)"),
    row("lerp", "input, end, weight", floats=True, same=True),
    row("addcmul", "input, tensor1, tensor2, value=None", "input + value * tensor1 * tensor2", "input + tensor1 * tensor2"),
    row("addcdiv", "input, tensor1, tensor2, value=None", "input + value * (tensor1 / tensor2)", "input + tensor1 / tensor2", floats=True),
    row("xlogy special.xlogy", "input, other", "nan if isnan(other) else 0.0 if input == 0 else input * log(other)", floats=True),
    row("nan_to_num", "input, nan=0.0, posinf=None, neginf=None"),
    row("masked_fill", "input, mask, value", "value if mask else input", same=True),
    row("logical_and", "input, other", "input and other"),
    row("logical_or", "input, other", "input or other"),
    row("logical_not", "input", "not input"),
    row("bitwise_and", "input, other", "input & other"),
    row("bitwise_or", "input, other", "input | other"),
    row("bitwise_not", "input", "~input"),
    row("bitwise_left_shift", "input, other", "input << other"),
    row("bitwise_right_shift", "input, other", "input >> other"),
    # activations
    row("F.relu", "input, inplace=False", "relu(input)"),
    row("F.silu", "input, inplace=False", "silu(input)", floats=True),
    row("F.mish", "input, inplace=False", "mish(input)", floats=True),
    Row("F.gelu", "input, approximate='none'", {"none": "gelu(input)", "tanh": "gelu_tanh(input)"}, by="approximate", floats=True),
    row("F.softplus", "input, beta=None, threshold=20", "softplus(beta * input) / beta", "softplus(input)", floats=True),
    row("F.logsigmoid", "input", "-softplus(-input)", floats=True),
    row("F.softsign", "input", "softsign(input)", floats=True),
    row("F.tanhshrink", "input", "input - tanh(input)", floats=True),
    row("F.elu", "input, alpha=1.0, inplace=False", "elu(input, alpha)", floats=True),
    row("F.celu", "input, alpha=1.0, inplace=False", "input if input > 0 else alpha * expm1(input / alpha)", floats=True),
    row("F.selu", "input, inplace=False", "1.0507009873554804934193349852946 * elu(input, 1.6732632423543772848170429916717)", floats=True),
    row("F.leaky_relu", "input, negative_slope=0.01, inplace=False", "leaky_relu(input, negative_slope)", floats=True),
    row("F.relu6", "input, inplace=False", "0 if input <= 0 else 6 if input >= 6 else input"),
    row("F.hardtanh", "input, min_val=-1.0, max_val=1.0, inplace=False",
        "min_val if input <= min_val else max_val if input >= max_val else input", floats=True),
    row("F.hardsigmoid", "input, inplace=False", "hardsigmoid(input)", floats=True),
    row("F.hardswish", "input, inplace=False", "hardswish(input)", floats=True),
    row("F.hardshrink hardshrink", "input, lambd=0.5", "0.0 if input >= -lambd and input <= lambd else input", floats=True),
    row("F.softshrink", "input, lambd=0.5",
        "input - lambd if input > lambd else input + lambd if input < -lambd else input * 0", floats=True),
    row("F.threshold", "input, threshold, value, inplace=False", "value if input <= threshold else input", same=True),
    # over dims
    row("sum", "input, dim=None, keepdim=False, dtype=None", "sum[D](input)", reduces=True),
    row("mean", "input, dim=None, keepdim=False, dtype=None", "mean[D](input)", reduces=True),
    row("prod", "input, dim=None, keepdim=False, dtype=None", "prod[D](input)", reduces=True),
    row("nansum", "input, dim=None, keepdim=False, dtype=None", "sum[D](0 if isnan(input) else input)", reduces=True),
    row("amax", _REDUCE, "max[D](input)", reduces=True),
    row("amin", _REDUCE, "min[D](input)", reduces=True),
    row("any", _REDUCE, "any[D](input)", reduces=True),
    row("all", _REDUCE, "all[D](input)", reduces=True),
    row("argmax", _REDUCE, "argmax[D](input)", reduces=True),
    row("argmin", _REDUCE, "argmin[D](input)", reduces=True),
    row("count_nonzero", "input, dim=None", "sum[D](input != 0)", reduces=True),
    row("logsumexp special.logsumexp", "input, dim, keepdim=False", "logsumexp[D](input)", reduces=True, floats=True),
    Row("var", "input, dim=None, unbiased=None, keepdim=False, correction=1",
        {1: "var[D](input)", 0: "mean[D](center[D](input)^2)"}, by="correction", reduces=True, floats=True),
    Row("std", "input, dim=None, unbiased=None, keepdim=False, correction=1",
        {1: "std[D](input)", 0: "sqrt(mean[D](center[D](input)^2))"}, by="correction", reduces=True, floats=True),
    row("var_mean", "input, dim=None, unbiased=None, keepdim=False, correction=1"),
    row("std_mean", "input, dim=None, unbiased=None, keepdim=False, correction=1"),
    row(".norm torch.norm", "input, p=2, dim=None, keepdim=False", "norm[D](input)", reduces=True, floats=True),
    row("linalg.vector_norm", "input, ord=2, dim=None, keepdim=False", "norm[D](input)", reduces=True, floats=True),
    row("softmax special.softmax", "input, dim, dtype=None", "softmax[D](input)", floats=True),
    row("log_softmax special.log_softmax", "input, dim, dtype=None", "log_softmax[D](input)", floats=True),
    row("F.softmax", "input, dim, _stacklevel=3, dtype=None", "softmax[D](input)", floats=True),
    row("F.log_softmax", "input, dim, _stacklevel=3, dtype=None", "log_softmax[D](input)", floats=True),
    row("F.softmin", "input, dim, _stacklevel=3, dtype=None", "softmax[D](-input)", floats=True),
    row("F.normalize", "input, p=2.0, dim=1, eps=1e-12", "input / lower(norm[D](input), eps)", floats=True),
    row("F.cosine_similarity cosine_similarity", "x1, x2, dim=1, eps=1e-8",
        "sum[D](x1 * x2) / (lower(norm[D](x1), eps) * lower(norm[D](x2), eps))", reduces=True, floats=True),
    row("F.layer_norm", "input, normalized_shape, weight=None, bias=None, eps=1e-5", *_AFFINE, floats=True),
    row("F.group_norm group_norm", "input, num_groups, weight=None, bias=None, eps=1e-5", *_AFFINE, floats=True),
    row("F.instance_norm", "input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, "
        "eps=1e-5", *_AFFINE, floats=True),
    row("F.rms_norm rms_norm", "input, normalized_shape, weight=None, eps=None",
        "input * rsqrt(mean[D](input^2) + eps) * weight", "input * rsqrt(mean[D](input^2) + eps)", floats=True),
    # losses
    row("F.mse_loss", f"input, target, {_OLD}, reduction='mean'", "(input - target)^2", floats=True),
    row("F.l1_loss", f"input, target, {_OLD}, reduction='mean'", "abs(input - target)"),
    row("F.hinge_embedding_loss", f"input, target, margin=1.0, {_OLD}, reduction='mean'",
        "(0 if target == 1 else lower(margin - input, 0)) + (0 if target == -1 else input)", floats=True),
    row("F.smooth_l1_loss", f"input, target, {_OLD}, reduction='mean', beta=1.0",
        "0.5 * (input - target)^2 / beta if abs(input - target) < beta else abs(input - target) - 0.5 * beta", floats=True),
    row("F.huber_loss", "input, target, reduction='mean', delta=1.0",
        "0.5 * (input - target)^2 if abs(input - target) <= delta else delta * (abs(input - target) - 0.5 * delta)", floats=True),
    Row("F.kl_div", f"input, target, {_OLD}, reduction='mean', log_target=False",
        {False: "(nan if isnan(target) else 0.0 if target == 0 else target * log(target)) - target * input",
         True: "exp(target) * (target - input)"}, by="log_target", floats=True),
    row("F.binary_cross_entropy_with_logits", f"input, target, weight=None, {_OLD}, reduction='mean', pos_weight=None",
        "(1 - target) * input + (1 + (pos_weight - 1) * target) * softplus(-input)", "(1 - target) * input + softplus(-input)",
        floats=True),
    row("F.cross_entropy", "input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean', "
        "label_smoothing=0.0",
        "0.0 if target == ignore_index else logsumexp[D](input) - pick[D](input, target)",
        "0.0 if target == ignore_index else (1 - label_smoothing) * (logsumexp[D](input) - pick[D](input, target)) "
        "+ label_smoothing * (logsumexp[D](input) - mean[D](input))", floats=True),
    # what the tracer does itself
    row("max", "input, dim=None, keepdim=False", "max[D](input)", "argmax[D](input)", reduces=True),
    row("min", "input, dim=None, keepdim=False", "min[D](input)", "argmin[D](input)", reduces=True),
    row(".to", "input, dtype"),
    row(".type", "input, dtype"),
    row(".type_as", "input, other"),
    row(".size", "input, dim=None"),
    row(".dim .ndimension", "input"),
    row("numel .nelement", "input", "size[D](input)"),
    row("unsqueeze", "input, dim"),
    row("squeeze", "input, dim"),
    row("transpose swapaxes swapdims", "input, dim0, dim1"),
    row("t", "input"),
    row("permute", "input, dims", rest=True),
    row("movedim moveaxis", "input, source, destination"),
    row("expand_as", "input, other", shares=True),
    row(".expand broadcast_to", "input, size", rest=True),
    row(".view .reshape torch.reshape", "input, shape", rest=True),
    row("view_as reshape_as", "input, other"),
    row("repeat_interleave", "input, repeats, dim=None"),
    row("unflatten", "input, dim, sizes"),
    row("flatten", "input, start_dim=0, end_dim=-1"),
    row("chunk tensor_split", "input, chunks, dim=0"),
    row("split", "input, split_size, dim=0"),
    row("unbind", "input, dim=0"),
    row("select", "input, dim, index"),
    row("narrow", "input, dim, start, length"),
    row("cat concat concatenate", "tensors, dim=0"),
    row("stack", "tensors, dim=0"),
    row("torch.einsum", "equation, operands", rest=True, floats=True),
    row("F.pad", "input, pad, mode='constant', value=None"),
    row("roll", "input, shifts, dims=None"),
    row("flip", "input, dims", rest=True),
    row("F.embedding", "input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False"),
    row("F.embedding_bag", "input, weight, offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode='mean', "
        "sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None"),
    row("index_select", "input, dim, index"),
    row("gather", "input, dim, index"),
    row("take_along_dim", "input, index, dim"),
    row("cumsum", "input, dim, dtype=None"),
    row("cumprod", "input, dim, dtype=None"),
    row("cummax", "input, dim"),
    row("cummin", "input, dim"),
    row("logcumsumexp", "input, dim"),
    row("topk", "input, k, dim=-1, largest=True, sorted=True"),
    row("kthvalue", "input, k, dim=-1, keepdim=False"),
    *(row(f"F.max_pool{n}d", "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False")
      for n in (1, 2, 3)),
    row("F.avg_pool1d", "input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True"),
    *(row(f"F.avg_pool{n}d", "input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None")
      for n in (2, 3)),
    row("index_add .index_add_", "input, dim, index, source, alpha=None"),
    row("scatter_add .scatter_add_", "input, dim, index, src"),
    row("scatter_reduce .scatter_reduce_", "input, dim, index, src, reduce, include_self=True"),
    row("bincount", "input, weights=None, minlength=0"),
    row("torch.zeros", "size, dtype=None, device=None", rest=True),
    row("torch.ones", "size, dtype=None, device=None", rest=True),
    row("torch.full", "size, fill_value, dtype=None, device=None"),
    row(".new_zeros", "input, size, dtype=None, device=None", rest=True),
    row(".new_ones", "input, size, dtype=None, device=None", rest=True),
    row(".new_full", "input, size, fill_value, dtype=None, device=None"),
    row("zeros_like", "input, dtype=None", "0"),
    # random numbers
    row("F.dropout torch.dropout", "input, p=0.5, training=True, inplace=False", floats=True),
    row("bernoulli", "input", floats=True),
    row("torch.rand_like", "input, dtype=None"),
    row("torch.randn_like", "input, dtype=None"),
    row("ones_like", "input, dtype=None", "1"),
    row("full_like", "input, fill_value, dtype=None", "fill_value"),
    row("F.one_hot", "tensor, num_classes=-1"),
    row("torch.arange", "start, end=None, step=1, dtype=None, device=None"),
)  # fmt: skip


def out_of_place(name: str) -> str:
    """The method that computes what one of torch's writes in place, as `clamp` of `clamp_`; "" of other names."""
    plain = name[:-1]
    known = name.endswith("_") and plain in METHODS and name not in METHODS and plain != "bernoulli"  # its `bernoulli_(p)` draws by p
    torch = sys.modules.get("torch")
    return plain if known and hasattr(getattr(torch, "Tensor", None), name) else ""


def places(row: Row) -> list[str]:
    """The row's names, each with its place: "torch.exp", "Tensor.exp", "nn.functional.silu"."""
    found = []
    for name in row.names.split():
        if name.startswith("."):
            found.append(f"Tensor{name}")
        elif name.startswith("F."):
            found.append(f"nn.functional.{name[2:]}")
        elif name.startswith("torch."):
            found.append(name[6:])
        elif "." in name:
            found.append(name)
        else:
            found += [name, f"Tensor.{name}"]
    return found


METHODS: dict[str, Row] = {p.removeprefix("Tensor."): r for r in ROWS for p in places(r) if p.startswith("Tensor.")}

#: Python's `math`, for numbers.
MATH = {
    name: name
    for name in "exp expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc "
    "lgamma hypot floor ceil trunc copysign exp2 cbrt".split()
} | {"fabs": "abs", "pow": "pow", "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite"}

ADVICE = {
    "item tolist numpy": "its value is not known while the function is traced: keep it a tensor, or make it a parameter, `s: float`",
    "cpu cuda": "a kernel runs where its tensors are",
    "backward requires_grad_ retain_grad": "a kernel's gradient is derived from it",
    "repeat tile": "change shapes outside the kernel; dims meet by name",
    "matmul mm bmm addmm linear dot conv1d conv2d": "products of matrices stay outside; a sum over a dim is `sum[\"K\"](a * b)`",
    "scatter": "sums by number are read: `torch.zeros(V, D).index_add(0, ids, x)`",
    "sort argsort median": "sorting is not read; `topk` and `kthvalue` are",
    "dropout rand_like randn_like bernoulli": "make the random numbers outside and pass them as a parameter",
    "rand randn randint normal": "`torch.rand_like(x)`, `torch.randn_like(x)`, `torch.bernoulli` and `F.dropout` are read",
    "finfo iinfo": "what it says of a dtype that the call decides is not known: mask by `float(\"-inf\")`",
    "print": "a kernel has no side effects: print its results",
    "tensor": "write the number itself",
    "len": "a size is `x.shape[0]`",
    "divmod": "write `a // b` and `a % b`",
}  # fmt: skip


#: What to write for a loop whose end is known at the call.
LOOPS = 'a sum over a dim is `sum["N"](x)`, a recurrence h = a * h + b along it `recur["N"](a, b)`; else give its end as a number'


def advice(name: str) -> str:
    return next((text for names, text in ADVICE.items() if name in names.split()), "")


@lru_cache(maxsize=2)
def _objects(torch: Any) -> dict[int, tuple[str, Row, Any]]:
    found = {}
    for r in ROWS:
        for place in places(r):
            thing = torch
            for part in place.split("."):
                thing = getattr(thing, part, None)
            if thing is not None:
                found[id(thing)] = place, r, thing
    return found


def of_object(thing: Any) -> tuple[str, Row] | None:
    """The row of a function of torch's.  torch is never imported here: a function of it can only be at hand where it is loaded."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return None
    found = _objects(torch).get(id(thing))
    return found[:2] if found is not None and found[2] is thing else None
