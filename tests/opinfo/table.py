"""Which of PyTorch's operators kgen can express, and how each is asked for; which it cannot, and why.

`ROWS` is keyed by the operator's name in `op_db`, with its variant after a colon where that matters.  An operator that the tracer
knows by itself needs a row only where its dims must have names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.opinfo import formulas as f

Sample = tuple[tuple, dict[str, Any]]


def from_right(args: tuple, kwargs: dict[str, Any]) -> None:
    """Dims named by their distance from the right, as torch pairs them: the adapter's own way."""


@dataclass(frozen=True)
class Row:
    """How an operator is asked for.

    `formula` is traced where the tracer does not know the operator's own function, or refuses the sample's form of it.  `dims` is None
    where all dims are leading ones (`...`), `from_right`, or a function that gives each tensor's dims in the order of the arguments;
    `result` gives the dims of the result where they stand in another order than kgen's.  `prepare` rewrites a sample before anything
    else sees it (defaults that depend on the dtype, arguments that say the same); `outside` says why a sample is not asked for.
    """

    formula: Callable[..., Any] | None = None
    dims: Callable[..., Any] | None = None
    result: Callable[..., Any] | None = None
    prepare: Callable[..., Sample] | None = None
    outside: Callable[..., str] | None = None


def letters(rank: int) -> list[str]:
    """The dims of a tensor whose channels or classes, V, are dim 1 (dim 0 of a single row)."""
    return ["V"] if rank == 1 else ["B", "V", *(f"E{k}" for k in range(1, rank - 1))][:rank]


def channels(args: tuple, kwargs: dict[str, Any]) -> list[list[str]]:
    """The first tensor by `letters`; vectors along V, and what lacks V (class indices)."""
    import torch

    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
    own = letters(tensors[0].dim())
    found = [own]
    for t in tensors[1:]:
        if t.dim() == len(own) and t.shape == tensors[0].shape:
            found.append(own)
        elif not t.dtype.is_floating_point and t.dim() == len(own) - 1:
            found.append([d for d in own if d != "V"])
        else:
            found.append(["V"] if t.dim() else [])
    return found


def fixed(*dims: str) -> Callable[..., Any]:
    """Dims by argument, as in `fixed("M N", "N")`; a tensor of lower rank has the last of them."""

    def named(args: tuple, kwargs: dict[str, Any]) -> list[list[str]]:
        import torch

        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        return [d.split()[-t.dim() :] if t.dim() and d != "..." else d.split() if d == "..." else [] for d, t in zip(dims, tensors)]

    return named


def along(args: tuple, kwargs: dict[str, Any], at: int) -> tuple[list[str], Any, int]:
    """The dims of a tensor in which V is the dim that an operator picks along; the tensor of indices; V's place."""
    import torch

    given = [a for a in (*args, *kwargs.values()) if not isinstance(a, torch.Tensor)]
    x, index = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)][:2]
    dim = next((a for a in given if isinstance(a, int) and not isinstance(a, bool)), 0) % max(1, x.dim())
    names = [f"D{k}" for k in range(x.dim(), 0, -1)]
    names[dim : dim + 1] = ["V"]
    return names, index, dim


def select_dims(args: tuple, kwargs: dict[str, Any]) -> list[list[str]]:
    return [along(args, kwargs, 0)[0], ["K"]]


def select_result(args: tuple, kwargs: dict[str, Any]) -> list[str]:
    return ["K" if d == "V" else d for d in along(args, kwargs, 0)[0]]


def gather_dims(args: tuple, kwargs: dict[str, Any]) -> list[list[str]]:
    return [along(args, kwargs, 0)[0], select_result(args, kwargs)]


def unlike_gather(args: tuple, kwargs: dict[str, Any]) -> str:
    """torch lets an index be smaller than the tensor in the dims that it is not picked along."""
    names, index, dim = along(args, kwargs, 0)
    x = args[0]
    same = index.dim() == x.dim() and all(k == dim or n == m for k, (n, m) in enumerate(zip(index.shape, x.shape)))
    return "" if same else "an index smaller than the tensor: sizes of one dim are equal"


def only_dtype(args: tuple, kwargs: dict[str, Any]) -> Sample:
    """`x.to(device, dtype, ...)` and `x.to(other)` as `x.to(dtype)`."""
    import torch

    dtypes = [a for a in (*args[1:], *kwargs.values()) if isinstance(a, torch.dtype)]
    others = [a.dtype for a in args[1:] if isinstance(a, torch.Tensor)]
    return (args[0], (dtypes + others + [args[0].dtype])[0]), {}


def eps_of_dtype(args: tuple, kwargs: dict[str, Any]) -> Sample:
    """rms_norm's epsilon is that of the dtype it computes in."""
    import torch

    names = ("input", "normalized_shape", "weight", "eps")
    given = {**dict(zip(names, args)), **kwargs}
    if given.get("eps") is None:
        x = given["input"]
        given["eps"] = torch.finfo(x.dtype if x.dtype == torch.float64 else torch.float32).eps
    return (given.pop("input"), given.pop("normalized_shape")), given


def no_layout(args: tuple, kwargs: dict[str, Any]) -> Sample:
    """How a result lies in memory is not asked."""
    return args, {k: v for k, v in kwargs.items() if k != "memory_format"}


def used_statistics(args: tuple, kwargs: dict[str, Any]) -> Sample:
    """Running statistics only where they are read: by a batch norm that does not train, an instance norm without statistics of its own."""
    names = ("x", "running_mean", "running_var")
    given = {**dict(zip(names, args[:3])), **kwargs}
    if given.get("training", len(args) > 5 and args[5]) or given.get("use_input_stats", len(args) == 1):
        given = {k: None if k in names[1:] else v for k, v in given.items()}
    rest = args[3:]
    return (given.pop("x"), *(given.pop(n, None) for n in names[1:]), *rest), given


def keepdim_by_name(args: tuple, kwargs: dict[str, Any]) -> Sample:
    """`max(x, dim, True)` as `max(x, dim, keepdim=True)`."""
    return args[:2], kwargs | dict(zip(("keepdim",), args[2:]))


def other_sizes(args: tuple, kwargs: dict[str, Any]) -> str:
    """A normalized shape that is not that of the tensor's last dims, of which a kernel takes the sizes."""
    shape = tuple(next(a for a in (*args[1:], *kwargs.values()) if isinstance(a, (tuple, list))))
    return "" if shape and tuple(args[0].shape[-len(shape) :]) == shape else "sizes are those of the tensor, not arguments"


def weighted_integers(args: tuple, kwargs: dict[str, Any]) -> str:
    return "" if args[0].dtype.is_floating_point else "torch takes fractions of integers, and sums of bools, in the operands' dtype"


def rank_zero(args: tuple, kwargs: dict[str, Any]) -> str:
    return "" if args[0].dim() else "torch gives a float for a position where the rank is 0"


def masked_integers(args: tuple, kwargs: dict[str, Any]) -> str:
    plain = args[0].dtype.is_floating_point or kwargs.get("mask") is None
    return "" if plain else "torch fills masked integers with their least or greatest number"


def higher(args: tuple, kwargs: dict[str, Any]) -> str:
    """polygamma of an order but 0."""
    n = next((a for a in (*args, *kwargs.values()) if isinstance(a, int)), 0)
    return f"polygamma({n}, x): the language does not have it" if n else ""


def is_random(args: tuple, kwargs: dict[str, Any]) -> str:
    return "random numbers" if kwargs.get("training") or len(args) > 3 and args[3] else ""


def keyword(name: str, *allowed: Any) -> Callable[..., str]:
    """Outside where a keyword has another value than these."""

    def why(args: tuple, kwargs: dict[str, Any]) -> str:
        return "" if kwargs.get(name, allowed[0]) in allowed else f"{name}={kwargs[name]!r}"

    return why


def embedding_form(args: tuple, kwargs: dict[str, Any]) -> str:
    if kwargs.get("max_norm") is not None:
        return "the weight is written in place (max_norm)"
    return "the gradient depends on how often a row is taken (padding_idx, scale_grad_by_freq, sparse)" if kwargs else ""


def weight_and_indices(args: tuple, kwargs: dict[str, Any]) -> Sample:
    return (args[0], args[1]), {}


def whole_matrix(args: tuple, kwargs: dict[str, Any]) -> str:
    """Norms of matrices other than the Frobenius norm."""
    given = {**dict(zip(("x", "ord", "dim"), args)), **kwargs}
    given.setdefault("ord", given.get("p"))
    x, order, dim = given["x"], given.get("ord"), given.get("dim")
    several = len(dim) == 2 if isinstance(dim, (tuple, list)) else dim is None and x.dim() == 2
    if isinstance(order, str) and order != "fro":
        return "norms that need singular values"
    return "norms of matrices" if several and order is not None and order != "fro" and "p" not in given else ""


NAMED = Row(dims=from_right)


def named(formula: Callable[..., Any] | None = None, **marks: Any) -> Row:
    return Row(formula, from_right, **marks)


#: What the tracer knows by itself, with leading dims alone.
KNOWN = (
    "abs acos acosh add clamp_max clamp_min mul sub addcmul addcdiv asin asinh atan atan2 atanh bitwise_not bitwise_left_shift "
    "bitwise_right_shift ceil clone clamp positive copysign cos cosh true_divide div:no_rounding_mode div:floor_rounding exp eq remainder frac floor "
    "floor_divide log1p ge gt le log log10 log2 lt masked_fill max:binary maximum min:binary minimum bitwise_and bitwise_or "
    "nn.functional.relu nn.functional.hardswish nn.functional.leaky_relu nn.functional.elu nn.functional.celu nn.functional.selu "
    "nn.functional.silu nn.functional.hardsigmoid nn.functional.logsigmoid nn.functional.mish nn.functional.softsign "
    "nn.functional.tanhshrink nn.functional.threshold nn.functional.softshrink nn.functional.hardshrink nn.functional.hardtanh "
    "nn.functional.gelu nn.functional.relu6 ne neg pow round round:decimals_0 sin sinh sign sgn signbit tan tanh trunc exp2 expm1 reciprocal rsqrt "
    "sqrt square lerp isfinite isinf isnan zeros_like ones_like full_like hypot xlogy sigmoid digamma erf erfc erfinv lgamma"
)
#: What the tracer knows by itself, over dims that have names.
OVER_DIMS = (
    "max:reduction_with_dim max:reduction_no_dim min:reduction_with_dim min:reduction_no_dim softmax softmax:with_dtype nn.functional.softmin "
    "nn.functional.softmin:with_dtype nn.functional.cosine_similarity logsumexp nn.functional.smooth_l1_loss nn.functional.l1_loss "
    "log_softmax log_softmax:with_dtype nn.functional.mse_loss all any amax amin argmax argmin count_nonzero mean prod sum nansum "
    "nn.functional.huber_loss"
)

ROWS: dict[str, Row] = {
    **{name: Row() for name in KNOWN.split()},
    **{name: NAMED for name in OVER_DIMS.split()},
    **{name: named(prepare=keepdim_by_name) for name in ("logsumexp", "max:reduction_with_dim", "min:reduction_with_dim")},
    # one operand
    **{
        name: Row(f.copy, prepare=no_layout)
        for name in ("contiguous", "conj", "conj_physical", "resolve_conj", "resolve_neg", "real", "alias_copy", "clone")
    },
    "sinc": Row(f.sinc),
    "deg2rad": Row(f.deg2rad),
    "rad2deg": Row(f.rad2deg),
    "nan_to_num": Row(f.nan_to_num),
    "angle": Row(f.angle),
    "isposinf": Row(f.isposinf),
    "isneginf": Row(f.isneginf),
    "isreal": Row(f.isreal),
    "round:decimals_3": Row(f.round_decimals),
    "round:decimals_neg_3": Row(f.round_decimals),
    "logit": Row(f.logit),
    "mvlgamma:mvlgamma_p_1": Row(f.mvlgamma),
    "mvlgamma:mvlgamma_p_3": Row(f.mvlgamma),
    "mvlgamma:mvlgamma_p_5": Row(f.mvlgamma),
    "polygamma:polygamma_n_0": Row(f.polygamma, outside=higher),
    "special.polygamma:special_polygamma_n_0": Row(f.polygamma, outside=higher),
    "special.ndtr": Row(f.ndtr),
    "special.ndtri": Row(f.ndtri),
    "special.entr": Row(f.entr),
    "nn.functional.softplus": Row(f.softplus),
    "nn.functional.rrelu": Row(f.rrelu, outside=is_random),
    **{
        name: Row(getattr(f, f"to_{name}"), prepare=no_layout)
        for name in ("bfloat16", "bool", "byte", "char", "double", "float", "half", "int", "long", "short")
    },
    "to": Row(f.to, prepare=only_dtype),
    "fill": Row(f.fill),
    "zero_": Row(f.zeros),
    "logical_not": Row(f.logical_not),
    # two operands and more
    "div:trunc_rounding": Row(f.divide),
    "fmod": Row(f.fmod),
    "fmax": Row(f.fmax),
    "fmin": Row(f.fmin),
    "heaviside": Row(f.heaviside),
    "ldexp": Row(f.ldexp),
    "logaddexp": Row(f.logaddexp),
    "logaddexp2": Row(f.logaddexp2),
    "logical_and": Row(f.logical_and),
    "logical_or": Row(f.logical_or),
    "logical_xor": Row(f.logical_xor),
    "bitwise_xor": Row(f.bitwise_xor),
    "__rxor__": Row(f.bitwise_xor),
    "isclose": Row(f.isclose),
    "float_power": Row(f.float_power),
    "special.xlog1py": Row(f.xlog1py),
    "rsub": Row(f.rsub),
    "__rsub__": Row(f.rsub),
    "__radd__": Row(f.radd),
    "__rmul__": Row(f.rmul),
    "__rdiv__": Row(f.rdiv),
    "__rmod__": Row(f.rmod),
    "__rpow__": Row(f.rpow),
    "__rand__": Row(f.rand),
    "__ror__": Row(f.ror),
    "where": Row(f.where_method),
    "nn.functional.prelu": Row(f.prelu, channels),
    "native_dropout_backward": Row(f.dropout_backward),
    # over dims
    "mean": named(f.mean_of_integers),
    "nanmean": named(f.nanmean),
    "var": named(f.var),
    "std": named(f.std),
    "var:unbiased": named(f.var_unbiased),
    "std:unbiased": named(f.std_unbiased),
    "var_mean": named(f.var_mean),
    "std_mean": named(f.std_mean),
    "var_mean:unbiased": named(f.var_mean_unbiased),
    "std_mean:unbiased": named(f.std_mean_unbiased),
    "aminmax": named(f.aminmax),
    "norm": named(f.norm),
    "norm:fro": named(f.norm),
    "norm:inf": named(f.norm),
    "linalg.vector_norm": named(f.vector_norm),
    "linalg.norm": named(f.linalg_norm, outside=whole_matrix),
    "linalg.norm:subgradients_at_zero": named(f.linalg_norm, outside=whole_matrix),
    "dist": named(f.dist),
    "nn.functional.pairwise_distance": named(f.pairwise_distance),
    "nn.functional.normalize": named(f.normalize),
    "_softmax_backward_data": named(f.softmax_backward),
    "torch.ops.aten._safe_softmax.default": named(f.safe_softmax),
    "nn.functional.layer_norm": named(f.layer_norm, outside=other_sizes),
    "native_layer_norm": named(f.native_layer_norm, outside=other_sizes),
    "nn.functional.rms_norm": named(f.rms_norm, prepare=eps_of_dtype, outside=other_sizes),
    "nn.functional.batch_norm": Row(f.batch_norm, channels, prepare=used_statistics),
    "nn.functional.batch_norm:without_cudnn": Row(f.batch_norm, channels, prepare=used_statistics),
    "nn.functional.instance_norm": Row(f.instance_norm, channels, prepare=used_statistics),
    "trace": named(f.trace),
    "tril": named(f.tril),
    "triu": named(f.triu),
    "outer": Row(f.outer, fixed("M", "N")),
    "addr": Row(f.addr, fixed("M N", "M", "N"), outside=weighted_integers),
    "dot": Row(f.dot, fixed("N", "N")),
    "vdot": Row(f.dot, fixed("N", "N")),
    "mv": Row(f.mv, fixed("M N", "N")),
    "addmv": Row(f.addmv, fixed("M", "M N", "N"), outside=weighted_integers),
    "linalg.vecdot": named(f.vecdot),
    "nn.functional.embedding": Row(f.embedding, fixed("V E", "..."), prepare=weight_and_indices, outside=embedding_form),
    "index_select": Row(f.picked, select_dims, select_result),
    "gather": Row(f.picked, gather_dims, select_result, outside=unlike_gather),
    "take_along_dim": Row(f.take_along, gather_dims, select_result, outside=unlike_gather),
    # losses
    "nn.functional.soft_margin_loss": named(f.soft_margin_loss),
    "nn.functional.margin_ranking_loss": named(f.margin_ranking_loss),
    "nn.functional.hinge_embedding_loss": named(f.hinge_embedding_loss),
    "nn.functional.cosine_embedding_loss": Row(f.cosine_embedding_loss, fixed("B V", "B V", "B")),
    "nn.functional.kl_div": named(f.kl_div),
    "nn.functional.poisson_nll_loss": named(f.poisson_nll_loss),
    "nn.functional.gaussian_nll_loss": named(f.gaussian_nll_loss),
    "nn.functional.binary_cross_entropy": named(f.binary_cross_entropy),
    "nn.functional.binary_cross_entropy_with_logits": named(f.bce_with_logits),
    "nn.functional.multilabel_soft_margin_loss": named(f.multilabel_soft_margin_loss),
    "nn.functional.multi_margin_loss": Row(f.multi_margin_loss, channels),
    "nn.functional.triplet_margin_loss": named(f.triplet_margin_loss),
    "nn.functional.nll_loss": Row(f.nll_loss, channels),
    "nn.functional.cross_entropy": Row(f.cross_entropy, channels),
    # torch.masked
    **{f"masked.{name}": named(getattr(f, f"masked_{name}")) for name in "sum prod mean softmax log_softmax softmin".split()},
    **{f"masked.{name}": named(getattr(f, f"masked_{name}"), outside=masked_integers) for name in ("amax", "amin", "logsumexp")},
    "masked.argmax": named(f.masked_argmax, outside=rank_zero),
    "masked.argmin": named(f.masked_argmin, outside=rank_zero),
}

#: What the language has no word for, by the reason.
OUTSIDE: dict[str, str] = {
    "complex numbers": "complex polar view_as_real view_as_complex cdouble cfloat chalf imag stft istft fft.* nn.functional.silu:complex",
    "products of matrices, planned as contractions": (
        "addmm* addbmm baddbmm bmm* mm matmul __rmatmul__ einsum inner tensordot kron nn.functional.linear nn.functional.bilinear torch._scaled_mm* "
        "cdist nn.functional.pdist linalg.multi_dot linalg.matrix_power nn.functional.linear_cross_entropy* corrcoef cov sparse.*"
    ),
    "convolutions, pooling and resampling": (
        "nn.functional.conv* nn.functional.adaptive_* nn.functional.avg_pool* nn.functional.max_pool* nn.functional.max_unpool* "
        "nn.functional.fractional_* max_pool2d_with_indices_backward nn.functional.interpolate* nn.functional.upsample_* _upsample_* "
        "nn.functional.grid_sample grid_sampler_* nn.functional.unfold nn.functional.local_response_norm"
    ),
    "attention, a product of matrices in the middle": (
        "nn.functional.scaled_dot_product_attention torch.ops.aten._flash_* torch.ops.aten._efficient_* nn.functional.multi_head_attention_forward"
    ),
    "factorisations and solvers of linear algebra": (
        "cholesky* geqrf lu lu_* ormqr qr svd* pca_lowrank pinverse triangular_solve logdet matrix_exp linalg.cholesky* linalg.cond linalg.det "
        "linalg.eig* linalg.householder_product linalg.inv* linalg.ldl_* linalg.lstsq* linalg.lu* linalg.matrix_norm linalg.matrix_rank* "
        "linalg.pinv* linalg.qr linalg.slogdet linalg.solve* linalg.svd* linalg.tensorinv linalg.tensorsolve norm:nuc"
    ),
    "scans": "cumsum cumprod cummax cummin logcumsumexp cumulative_trapezoid masked.cumsum masked.cumprod linalg.vander",
    "sorting, and what rests on it": (
        "sort argsort msort topk kthvalue median nanmedian mode quantile nanquantile unique* searchsorted bucketize masked.median renorm"
    ),
    "random numbers": (
        "cauchy exponential geometric log_normal normal* uniform randn* rand_like randint* multinomial bernoulli nn.functional.dropout* "
        "nn.functional.alpha_dropout nn.functional.feature_alpha_dropout*"
    ),
    "tensors moved, joined, cut or given other shapes": (
        "as_strided* atleast_* block_diag broadcast_* cartesian_prod cat chunk _chunk_cat column_stack combinations constant_pad_nd diag diag_embed "
        "diagflat diagonal* linalg.diagonal dsplit dstack expand* fft.fftshift fft.ifftshift flatten flip fliplr flipud H hsplit hstack mH "
        "meshgrid* movedim mT narrow* nn.functional.channel_shuffle nn.functional.glu nn.functional.pad* nn.functional.pixel_* permute* ravel "
        "repeat repeat_interleave reshape* resize_* roll rot90 select slice split* squeeze* stack sum_to_size swapaxes T t t_copy tensor_split tile "
        "transpose* unbind* unflatten unfold* unsafe_chunk unsafe_split unsqueeze* view view_as view_copy vsplit vstack"
    ),
    "elements shifted along a dim": "cross linalg.cross diff gradient trapz trapezoid",
    "writes at indices, sizes that depend on values": (
        "argwhere bincount histc histogram* index_add index_copy index_fill index_put index_reduce* masked_scatter masked_select nonzero* put scatter* "
        "select_scatter slice_scatter _segment_reduce* __getitem__ take _unsafe_masked_index* isin nn.functional.embedding_bag nn.functional.one_hot "
        "unravel_index nn.functional.multilabel_margin_loss to_sparse"
    ),
    "no tensor to compute from": (
        "arange empty* eye full linspace* logspace* new_* ones scalar_tensor signal.* tril_indices triu_indices zeros"
    ),
    "functions that the language does not have": (
        "i0 igamma igammac polygamma:polygamma_n_* special.airy_ai special.bessel_* special.chebyshev_* special.erfcx special.hermite_* special.i0e "
        "special.i1 special.i1e special.laguerre_* special.legendre_* special.log_ndtr special.modified_* special.scaled_* special.shifted_* "
        "special.spherical_* special.zeta frexp nextafter gcd lcm hash_tensor"
    ),
    "channels in groups: a dim split in two": "nn.functional.group_norm native_group_norm",
    "statistics written in place beside the result": "native_batch_norm _native_batch_norm_legit _batch_norm_with_update",
    "a Python value, not a tensor": "allclose equal item",
    "a function is among the arguments": "nn.functional.triplet_margin_with_distance_loss jiterator_*",
    "a dynamic program over time": "nn.functional.ctc_loss",
    "the masked form of what stands here without a mask": "masked.norm masked.var masked.std masked.normalize masked.logaddexp",
}


def label(op: Any) -> str:
    return f"{op.name}:{op.variant_test_name}" if op.variant_test_name else op.name


def outside(name: str) -> str:
    """Why an operator is not asked for; "" where it is, or where the table does not say."""
    from fnmatch import fnmatchcase

    if name in ROWS:
        return ""
    return next((why for why, names in OUTSIDE.items() if any(fnmatchcase(name, pattern) for pattern in names.split())), "")
