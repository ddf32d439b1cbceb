"""Arithmetic and functions of one number."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Operand, Value
from torchneuron.lowering.pointwise import KIND, pointwise

FLOAT = KIND.INT_TO_FLOAT


def _scaled(value: Operand, alpha: float) -> Operand:
    return value if alpha == 1 else value * alpha


def _reciprocal(x: Value) -> Value:
    return 1 / x


def _floor_divide(a: Operand, b: Operand) -> Value:
    """Divide and round down; the CPU corrects the quotient by the remainder for floats."""
    a, b = e.together(a, b)
    if not a.is_float:
        quotient = a / b
        if not a.dtype.is_signed:
            return quotient
        inexact = e.remainder(a, b).ne(0)
        return e.select(inexact & ((a < 0) ^ (b < 0)), quotient - 1, quotient)
    rest = e.remainder(a, b)
    quotient = (a - rest) / b
    quotient = e.select(rest.ne(0) & ((b < 0) ^ (rest < 0)), quotient - 1, quotient)
    floored = e.floor(quotient)
    floored = e.select(quotient - floored > 0.5, floored + 1, floored)
    zero = e.copysign(e.full_like(a, 0), a / b)
    return e.select(b.eq(0), a / b, e.select(quotient.eq(0), zero, floored))


def _remainder(a: Operand, b: Operand) -> Value:
    """Compute the remainder with the divisor's sign, as Python does."""
    a, b = e.together(a, b)
    rest = e.remainder(a, b)
    if not a.dtype.is_signed:
        return rest
    return e.select(rest.ne(0) & ((rest < 0) ^ (b < 0)), rest + b, rest)


def _fmod(a: Operand, b: Operand) -> Value:
    return e.remainder(*e.together(a, b))


def _divide_rounded(a: Operand, b: Operand, *, rounding_mode: str | None) -> Value:
    a, b = e.together(a, b)
    if rounding_mode == "floor":
        return _floor_divide(a, b)
    if rounding_mode == "trunc" and a.is_float:
        return e.trunc(a / b)
    return a / b


def _power(a: Operand, b: Operand) -> Value:
    """Raise to a power; small whole exponents multiply, as the CPU does."""
    if isinstance(a, Value) and not isinstance(b, Value):
        if b == 0:
            return e.full_like(a, 1)
        if b == 1:
            return a
        if b == 2:
            return a * a
        if b == 3:
            return a * a * a
        if a.is_float and b == 0.5:
            return e.sqrt(a)
        if a.is_float and b == -0.5:
            return e.rsqrt(a)
        if a.is_float and b in (-1, -2):
            return 1 / (a if b == -1 else a * a)
    a, b = e.together(a, b)
    if a.dtype == torch.bool:
        return a | ~b
    return a**b


def _sgn(x: Value) -> Value:
    if not x.is_complex:
        return e.sign_of(x)
    size = e.absolute(x)
    safe = e.select(size.eq(0), 1.0, size)
    return e.select(size.eq(0), x, x / safe.to(x.dtype))


def _square_root_of_sum(a: Value, b: Value) -> Value:
    big = e.maximum(e.absolute(a), e.absolute(b))
    small = e.minimum(e.absolute(a), e.absolute(b))
    ratio = small / e.select(big.eq(0), 1.0, big)
    plain = big * e.sqrt(1 + ratio * ratio)
    infinite = e.isinf(a) | e.isinf(b)
    return e.select(infinite, math.inf, plain)


def _logaddexp(a: Value, b: Value) -> Value:
    big, distance = e.maximum(a, b), -e.absolute(a - b)
    same_infinity = e.isinf(a) & a.eq(b)
    return e.select(same_infinity, a, big + e.log1p(e.exp(distance)))


def _logaddexp2(a: Value, b: Value) -> Value:
    big, distance = e.maximum(a, b), -e.absolute(a - b)
    same_infinity = e.isinf(a) & a.eq(b)
    return e.select(same_infinity, a, big + e.log1p(e.exp2(distance)) / math.log(2.0))


def _xlogy(a: Value, b: Value) -> Value:
    a, b = e.together(a, b)
    return e.select(e.isnan(b), math.nan, e.select(a.eq(0), 0.0, a * e.log(b)))


def _logit(x: Value, eps: float | None = None) -> Value:
    if eps is not None:
        x = e.clamp(x, eps, 1 - eps)
    return e.log(x / (1 - x))


def _sinc(x: Value) -> Value:
    scaled = x * math.pi
    return e.select(x.eq(0), 1.0, e.sin(scaled) / e.select(x.eq(0), 1.0, scaled))


def _digamma(x: Value) -> Value:
    """Compute the digamma function; PyTorch gives its pole at zero the sign that x comes from."""
    return e.select(x.eq(0), e.copysign(math.inf, -x), e.digamma(x))


def _log2(x: Value) -> Value:
    return e.log(x) / math.log(2.0)


def _log10(x: Value) -> Value:
    return e.log(x) / math.log(10.0)


def _round(x: Value) -> Value:
    return e.round_even(x) if x.is_float else x


def _round_decimals(x: Value, *, decimals: int = 0) -> Value:
    if not x.is_float or decimals == 0:
        return _round(x)
    ten = float(10 ** abs(decimals))
    return e.round_even(x * ten) / ten if decimals > 0 else e.round_even(x / ten) * ten


def _keep_integers(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    return lambda x: function(x) if x.is_float else x


def _lerp(a: Value, b: Value, weight: Operand) -> Value:
    """Interpolate from the nearer end, as the CPU does."""
    weight = weight if isinstance(weight, Value) else e.full_like(a, weight)
    from_b = b - (b - a) * (1 - weight)
    return e.select(e.absolute(weight) < 0.5, a + weight * (b - a), from_b)


def _nan_to_num(
    x: Value,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Value:
    if not x.is_float:
        return x
    limits = torch.finfo(x.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    x = e.select(e.isnan(x), nan or 0.0, x)
    x = e.select(x.eq(math.inf), high, x)
    return e.select(x.eq(-math.inf), low, x)


def _xlog1py(a: Value, b: Value) -> Value:
    a, b = e.together(a, b)
    return e.select(e.isnan(b), math.nan, e.select(a.eq(0), 0.0, a * e.log1p(b)))


def _entropy(x: Value) -> Value:
    outside = e.select(e.isnan(x), x, -math.inf)
    return e.select(x > 0, -x * e.log(x), e.select(x.eq(0), 0.0, outside))


pointwise("add.Tensor add.Scalar", lambda a, b, alpha=1: a + _scaled(b, alpha))
pointwise("sub.Tensor sub.Scalar", lambda a, b, alpha=1: a - _scaled(b, alpha))
pointwise("rsub.Tensor rsub.Scalar", lambda a, b, alpha=1: b - _scaled(a, alpha))
pointwise("mul.Tensor mul.Scalar", lambda a, b: a * b)
pointwise("div.Tensor div.Scalar true_divide.Tensor", lambda a, b: a / b, FLOAT)
pointwise("div.Tensor_mode div.Scalar_mode", _divide_rounded)
pointwise("floor_divide floor_divide.Scalar", _floor_divide)
pointwise("remainder.Tensor remainder.Scalar remainder.Scalar_Tensor", _remainder)
pointwise("fmod.Tensor fmod.Scalar", _fmod)
pointwise("pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar", _power)
pointwise("ldexp.Tensor", lambda a, b: a * e.full_like(b, 2) ** b, FLOAT)
pointwise("maximum", e.maximum)
pointwise("minimum", e.minimum)
pointwise("fmax", lambda a, b: e.select(e.isnan(a), b, e.select(e.isnan(b), a, e.maximum(a, b))))
pointwise("fmin", lambda a, b: e.select(e.isnan(a), b, e.select(e.isnan(b), a, e.minimum(a, b))))
pointwise("atan2", e.atan2, FLOAT)
pointwise("hypot", _square_root_of_sum)
pointwise("copysign.Tensor copysign.Scalar", e.copysign, FLOAT)
pointwise("logaddexp", _logaddexp, FLOAT)
pointwise("logaddexp2", _logaddexp2, FLOAT)
pointwise("xlogy.Tensor xlogy.Scalar_Other xlogy.Scalar_Self", _xlogy, FLOAT)
pointwise("lerp.Tensor lerp.Scalar", _lerp)
pointwise("addcmul", lambda a, x, y, value=1: a + _scaled(x * y, value))
pointwise("addcdiv", lambda a, x, y, value=1: a + _scaled(x, value) / y)

pointwise("abs", e.absolute_of, KIND.COMPLEX_TO_FLOAT)
pointwise("neg", lambda x: -x)
pointwise("positive", lambda x: x)
pointwise("sign", e.sign_of)
pointwise("sgn", _sgn)
pointwise("reciprocal", _reciprocal, FLOAT)
pointwise("square", lambda x: x * x)
pointwise("floor", _keep_integers(e.floor))
pointwise("ceil", _keep_integers(e.ceil))
pointwise("trunc", _keep_integers(e.trunc))
pointwise("frac", lambda x: x - e.trunc(x))
pointwise("round", _round)
pointwise("round.decimals", _round_decimals)
for _name in (
    "exp exp2 expm1 log log1p sqrt rsqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh "
    "atanh erf erfc lgamma sigmoid"
).split():
    pointwise(_name, getattr(e, _name), FLOAT)
pointwise("digamma", _digamma, FLOAT)
pointwise("erfinv", e.erf_inv, FLOAT)
pointwise("log2", _log2, FLOAT)
pointwise("log10", _log10, FLOAT)
pointwise("logit", _logit, FLOAT)
pointwise("sinc", _sinc, FLOAT)
pointwise("special_xlog1py", _xlog1py, FLOAT)
pointwise("special_entr", _entropy, FLOAT)
pointwise("special_ndtri", lambda x: math.sqrt(2.0) * e.erf_inv(2 * x - 1), FLOAT)
pointwise("deg2rad", lambda x: x * (math.pi / 180), FLOAT)
pointwise("rad2deg", lambda x: x * (180 / math.pi), FLOAT)
pointwise("nan_to_num", _nan_to_num)
