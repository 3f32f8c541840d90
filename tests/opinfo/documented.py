"""Where kgen differs from eager PyTorch on purpose, or eager is the less accurate; each difference by its name."""

from __future__ import annotations

from typing import Any

import torch

#: The differences, each by its name.
ZEROS = "the sign of a zero that max, min and clamp of equals give, or several operations together"
IN_F32 = "torch's gradient in f64 takes a constant that was rounded to f32: hardsigmoid's 1 / 6, celu's 1 / alpha"
OUT_OF_RANGE = "a float beyond an integer's range saturates, NaN is 0; torch's is the platform's"
AT_KINKS = "the gradient at a kink, at NaN or at an infinity: that of the comparisons and conditionals which the formula is made of"
NO_VALUE = "the gradient where the function itself is NaN or -inf: entr below 0, logit outside of [0, 1]"
ENDS = "the largest and least finite numbers are those of the dtype, not of float64"
OUTSIDE = "an index outside of its dim gives NaN, or 0 for integers: torch wraps negative ones, and raises for others"
KINKS = (0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0)
#: The operators of which that was seen: of any other, a gradient that differs there is a failure.
KINKED = """logaddexp logit special.entr special.xlog1py xlogy nn.functional.celu nn.functional.elu nn.functional.hardshrink
nn.functional.hardsigmoid nn.functional.hardtanh nn.functional.margin_ranking_loss nn.functional.relu6 nn.functional.selu
nn.functional.softshrink""".split()


def documented(op: Any, asked: Any, got: Any, eager: Any, wide: Any, message: str, gradient: bool = False) -> str:
    """The difference that accounts for a sample that disagrees, or ""."""
    operators = [v.op for v in asked.kernel.kernel.values if v.args]
    if message.endswith("the sign of a zero") and (len(operators) > 1 or operators[0] in ("max", "min", "clamp")):
        return ZEROS
    if op.name in ("nn.functional.hardsigmoid", "nn.functional.celu") and gradient and str(got.dtype) == "torch.float64":
        x = next(iter(asked.tensors.values())).detach().abs()  # by which celu's error is multiplied in the exponent
        return IN_F32 if bool(((got - wide).abs() <= 2.0**-23 * (1 + x) * wide.abs()).all()) else ""
    if op.name in ("byte", "char", "short", "int", "long") and not got.is_floating_point():
        x, ends = next(iter(asked.tensors.values())).double(), torch.iinfo(got.dtype)
        return OUT_OF_RANGE if bool(((got == eager) | ~((x >= ends.min) & (x <= ends.max))).all()) else ""
    if gradient and op.name in KINKED and got.shape == wide.shape and got.is_floating_point():
        far = (got.double() - wide).abs() > 2.0**-7 * (wide.abs() + 1e-30)  # coarser than any rounding: where the value is another one
        apart = far | (torch.isnan(got) != torch.isnan(wide))
        operands = [x.double() for x in asked.tensors.values() if x.shape == got.shape]
        at = [torch.isnan(x) | torch.isinf(x) | sum((x == k for k in KINKS), torch.zeros_like(x, dtype=torch.bool)) for x in operands]
        if operands and bool((~apart | sum(at, torch.zeros_like(apart))).all()):
            return AT_KINKS
        x = operands[0] if operands else wide
        no_value = {"special.entr": x < 0, "logit": (x < 0) | (x > 1)}.get(op.name)
        if no_value is not None and bool((~apart | no_value | at[0]).all()):
            return NO_VALUE
    if op.name == "nan_to_num" and not gradient and torch.equal(got, eager):
        return ENDS
    if op.name == "take_along_dim" and any(bool((x < 0).any()) for x in asked.tensors.values() if not x.is_floating_point()):
        return OUTSIDE
    return ""
