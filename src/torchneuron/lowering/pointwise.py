"""Rows for operators that compute each element by itself, with PyTorch's type promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from torchneuron.lowering import emit
from torchneuron.lowering.emit import Value
from torchneuron.lowering.registry import TABLE, Call, Rule

KIND = ELEMENTWISE_TYPE_PROMOTION_KIND
Formula = Callable[..., Any]


def pointwise(
    names: str, formula: Formula, kind: KIND = KIND.DEFAULT, *, computes_in_half: bool = False
) -> None:
    """Enter operators whose result elements depend on operand elements only.

    The formula gets the tensor arguments broadcast to the result's shape, in the dtype PyTorch
    computes in (float32 for the half types), and its answer is converted to the result's dtype.
    Python numbers stay as they are.

    Args:
        names: Overloads, separated by blanks; `aten.` in front is understood.
        formula: From values and the other arguments to one value.
        kind: PyTorch's promotion kind.
        computes_in_half: Leave half types alone: the formula moves or compares, it does not round.
    """
    rule = _rule(formula, kind, computes_in_half)
    for name in names.split():
        TABLE.add(f"aten.{name}", rule)


def _rule(formula: Formula, kind: KIND, computes_in_half: bool) -> Rule:
    def rule(call: Call, *args: Any, **kwargs: Any) -> Value:
        fakes = [
            fake
            for fake in (*call.args, *call.kwargs.values())
            if isinstance(fake, torch.Tensor | bool | int | float | complex)
        ]
        tensors_first = [each for each in fakes if isinstance(each, torch.Tensor)]
        numbers = _numbers(call)
        compute, result = elementwise_dtypes(*tensors_first, *numbers, type_promotion_kind=kind)
        dtype = result if computes_in_half and kind is not KIND.ALWAYS_BOOL else compute
        prepared = [_prepare(each, dtype, call.shape) for each in args]
        named = {key: _prepare(each, dtype, call.shape) for key, each in kwargs.items()}
        made = formula(*prepared, **named)
        if not isinstance(made, Value):
            made = emit.full(call.shape, made, dtype)
        return emit.broadcast_to(made, call.shape).to(call.dtype)

    return rule


def _numbers(call: Call) -> list[Any]:
    """Return the numbers that stand where the schema has a `Scalar` operand, as torch promotes."""
    operands = []
    for argument, value in zip(call.target._schema.arguments, call.args, strict=False):
        if argument.name in _OPERANDS and isinstance(value, bool | int | float | complex):
            operands.append(value)
    return operands


# Scalar arguments that take part in type promotion; `alpha`, `eps` and their like do not.
_OPERANDS = {"self", "other", "exponent", "min", "max"}


def _prepare(argument: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Any:
    if not isinstance(argument, Value):
        return argument
    return emit.broadcast_to(argument.to(dtype), shape)
