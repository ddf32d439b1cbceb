"""Comparisons, logic, bits, and choices between values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Operand, Value
from torchneuron.lowering.pointwise import KIND, pointwise
from torchneuron.lowering.registry import Call, lowers


def _compared(direction: str) -> Callable[[Operand, Operand], Value]:
    return lambda a, b: e.compare(direction, a, b)


def _logical(function: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    return lambda a, b: function(a.to(torch.bool), b.to(torch.bool))


def _shift_right(a: Operand, b: Operand) -> Value:
    """Shift by any count as the CPU does: past the width, or negative, only the sign is left."""
    a, b = e.together(a, b)
    return e.shift_right(a, b) if a.dtype.is_signed else e.shift_right_logical(a, b)


def _either_part(function: Callable[[Value], Value]) -> Callable[[Value], Value | bool]:
    """Apply to both parts of complex numbers; integers are neither infinite nor not-a-number."""

    def test(x: Value) -> Value | bool:
        if x.is_complex:
            return function(e.real(x)) | function(e.imag(x))
        return function(x) if x.is_float else False

    return test


def _isfinite(x: Value) -> Value | bool:
    if x.is_complex:
        return e.isfinite(e.real(x)) & e.isfinite(e.imag(x))
    return e.isfinite(x) if x.is_float else True


def _clamp(x: Value, min: Operand | None = None, max: Operand | None = None) -> Value:
    return e.clamp(x, min, max)


def _heaviside(x: Value, at_zero: Value) -> Value:
    return e.select(x.eq(0), at_zero, (x > 0).to(x.dtype))


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    pointwise(f"{_name}.Tensor {_name}.Scalar", _compared(_name.upper()), KIND.ALWAYS_BOOL)
pointwise("logical_and", _logical(lambda a, b: a & b), KIND.ALWAYS_BOOL)
pointwise("logical_or", _logical(lambda a, b: a | b), KIND.ALWAYS_BOOL)
pointwise("logical_xor", _logical(lambda a, b: a ^ b), KIND.ALWAYS_BOOL)
pointwise("logical_not", lambda x: ~x.to(torch.bool), KIND.ALWAYS_BOOL)

for _name, _formula in {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}.items():
    pointwise(
        f"bitwise_{_name}.Tensor bitwise_{_name}.Scalar bitwise_{_name}.Scalar_Tensor",
        lambda a, b, formula=_formula: formula(*e.together(a, b)),
    )
pointwise("bitwise_not", lambda x: ~x)
pointwise(
    "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar bitwise_left_shift.Scalar_Tensor "
    "__lshift__.Tensor __lshift__.Scalar",
    e.shift_left,
)
pointwise(
    "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar "
    "bitwise_right_shift.Scalar_Tensor __rshift__.Tensor __rshift__.Scalar",
    _shift_right,
)

pointwise("isnan", _either_part(e.isnan), KIND.ALWAYS_BOOL)
pointwise("isinf", _either_part(e.isinf), KIND.ALWAYS_BOOL)
pointwise("isfinite", _isfinite, KIND.ALWAYS_BOOL)
pointwise("isposinf", _either_part(lambda x: x.eq(math.inf)), KIND.ALWAYS_BOOL)
pointwise("isneginf", _either_part(lambda x: x.eq(-math.inf)), KIND.ALWAYS_BOOL)
pointwise("signbit", e.signbit, KIND.ALWAYS_BOOL)
pointwise("heaviside", _heaviside, computes_in_half=True)
pointwise("clamp clamp.Tensor", _clamp, computes_in_half=True)
pointwise("clamp_min clamp_min.Tensor", e.maximum, computes_in_half=True)
pointwise("clamp_max clamp_max.Tensor", e.minimum, computes_in_half=True)


@lowers("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(call: Call, condition: Value, yes: Operand, no: Operand) -> Value:
    yes, no = (
        each.to(call.dtype) if isinstance(each, Value) else e.full((), each, call.dtype)
        for each in (yes, no)
    )
    return e.select(condition.to(torch.bool), yes, no)


@lowers("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(call: Call, x: Value, mask: Value, fill: Any) -> Value:
    return e.select(mask, fill.to(call.dtype) if isinstance(fill, Value) else fill, x)
