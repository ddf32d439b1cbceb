"""Activation functions and their gradients.

At not-a-number each comparison falls as in the vectorized loops of the CPU: its scalar loops, which
do the last elements of a tensor, disagree with them in some gradients.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.pointwise import pointwise
from torchneuron.lowering.registry import Call, lowers

_TANH_SCALE, _TANH_CUBIC = math.sqrt(2 / math.pi), 0.044715


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def _gelu(x: Value, *, approximate: str = "none") -> Value:
    if approximate == "tanh":
        return 0.5 * x * (1 + e.tanh(_TANH_SCALE * (x + _TANH_CUBIC * x * x * x)))
    return 0.5 * x * (1 + e.erf(x * math.sqrt(0.5)))


def _gelu_backward(g: Value, x: Value, *, approximate: str = "none") -> Value:
    if approximate == "tanh":
        inner = e.tanh(_TANH_SCALE * (x + _TANH_CUBIC * x * x * x))
        slope = _TANH_SCALE * (1 + 3 * _TANH_CUBIC * x * x)
        return g * (0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * slope)
    below = 0.5 * (1 + e.erf(x * math.sqrt(0.5)))
    density = e.exp(-0.5 * x * x) * math.sqrt(0.5 / math.pi)
    return g * (below + x * density)


def _silu_backward(g: Value, x: Value) -> Value:
    s = e.sigmoid(x)
    return g * s * (1 + x * (1 - s))


def _mish_backward(g: Value, x: Value) -> Value:
    t = e.tanh(e.log1p(e.exp(x)))
    return g * (t + x * e.sigmoid(x) * (1 - t * t))


def _elu(x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    return e.select(x <= 0, e.expm1(x * input_scale) * (alpha * scale), x * scale)


def _elu_backward(
    g: Value, alpha: float, scale: float, input_scale: float, is_result: bool, x: Value
) -> Value:
    curve = x + alpha * scale if is_result else alpha * scale * e.exp(x * input_scale)
    return e.select(x > 0, g * scale, g * input_scale * curve)


def _softplus(x: Value, beta: float = 1, threshold: float = 20) -> Value:
    return e.select(x * beta > threshold, x, e.log1p(e.exp(x * beta)) / beta)


def _softplus_backward(g: Value, x: Value, beta: float, threshold: float) -> Value:
    return e.select(x * beta > threshold, g, g * e.sigmoid(x * beta))


def _softshrink(x: Value, lambd: float = 0.5) -> Value:
    inside = x * 0  # keeps not-a-number
    return e.select(x > lambd, x - lambd, e.select(x < -lambd, x + lambd, inside))


def _shrink_backward(g: Value, x: Value, lambd: float) -> Value:
    return e.select((x < -lambd) | (x > lambd), g, 0)


def _hardswish_backward(g: Value, x: Value) -> Value:
    return e.select(x <= -3, 0, e.select(x >= 3, g, g * (x / 3 + 0.5)))


def _logit_backward(g: Value, x: Value, eps: float | None = None) -> Value:
    slope = g / (x * (1 - x))
    if eps is None:
        return e.select((x < 0) | (x > 1), math.nan, slope)
    return e.select((x >= eps) & (x <= 1 - eps), slope, 0)


def _conjugate(x: Value) -> Value:
    return e.make_complex(e.real(x), -e.imag(x)) if x.is_complex else x


pointwise("relu", lambda x: e.maximum(x, 0))
pointwise("gelu", _gelu)
pointwise("gelu_backward", _gelu_backward)
pointwise("silu", lambda x: x * e.sigmoid(x))
pointwise("silu_backward", _silu_backward)
pointwise("mish", lambda x: x * e.tanh(e.log1p(e.exp(x))))
pointwise("mish_backward", _mish_backward)
pointwise("elu", _elu)
pointwise("elu_backward", _elu_backward)
pointwise("celu", lambda x, alpha=1.0: _elu(x, alpha, 1, 1 / alpha))
pointwise("leaky_relu", lambda x, slope=0.01: e.select(x > 0, x, x * slope))
pointwise("leaky_relu_backward", lambda g, x, slope, is_result: e.select(x > 0, g, g * slope))
pointwise("hardtanh", lambda x, low=-1, high=1: e.clamp(x, low, high))
pointwise("hardtanh_backward", lambda g, x, low, high: e.select((x > low) & (x < high), g, 0))
pointwise("hardsigmoid", lambda x: e.clamp(x + 3, 0, 6) / 6)
pointwise("hardsigmoid_backward", lambda g, x: e.select((x > -3) & (x < 3), g / 6, 0))
pointwise("hardswish", lambda x: x * e.clamp(x + 3, 0, 6) / 6)
pointwise("hardswish_backward", _hardswish_backward)
pointwise("softplus", _softplus)
pointwise("softplus_backward", _softplus_backward)
pointwise("softshrink", _softshrink)
pointwise("softshrink_backward hardshrink_backward", _shrink_backward)
pointwise("hardshrink", lambda x, lambd=0.5: e.select((x >= -lambd) & (x <= lambd), 0, x))
pointwise("threshold", lambda x, threshold, value: e.select(x <= threshold, value, x))
pointwise("threshold_backward", lambda g, x, threshold: e.select(x <= threshold, 0, g))
pointwise("_prelu_kernel", lambda x, weight: e.select(x > 0, x, weight * x))
pointwise("sigmoid_backward", lambda g, y: g * _conjugate((1 - y) * y))
pointwise("tanh_backward", lambda g, y: g * _conjugate(1 - y * y))
pointwise("logit_backward", _logit_backward)


@lowers("_prelu_kernel_backward")
def _prelu_kernel_backward(
    call: Call, gradient: Value, value: Value, weight: Value
) -> tuple[Value, Value]:
    dtype = _wide(gradient.dtype)
    g, x, w = (each.to(dtype) for each in (gradient, value, weight))
    made = e.select(x > 0, g, w * g), e.select(x > 0, 0, x * g)
    return made[0].to(value.dtype), made[1].to(weight.dtype)


@lowers("log_sigmoid_forward")
def _log_sigmoid_forward(call: Call, value: Value) -> tuple[Value, Value]:
    """Compute `log(sigmoid(x))`; the buffer is what only the CPU's gradient reads."""
    x = value.to(_wide(value.dtype))
    small = e.exp(-e.absolute(x))
    made = e.minimum(x, 0) - e.log1p(small)
    buffer = call.results[1]
    kept = small if tuple(buffer.shape) == small.shape else e.full(buffer.shape, 0, x.dtype)
    return made.to(value.dtype), kept.to(buffer.dtype)


@lowers("log_sigmoid_backward")
def _log_sigmoid_backward(call: Call, gradient: Value, value: Value, buffer: Value) -> Value:
    dtype = _wide(gradient.dtype)
    return (gradient.to(dtype) * e.sigmoid(-value.to(dtype))).to(call.dtype)


def _halves(value: Value, dim: int) -> tuple[Value, Value, int]:
    dim %= value.rank
    half = value.shape[dim] // 2
    wide = value.to(_wide(value.dtype))
    first = e.slice_dim(wide, dim, 0, half)
    return first, e.slice_dim(wide, dim, half, 2 * half), dim


@lowers("glu")
def _glu(call: Call, value: Value, dim: int = -1) -> Value:
    a, b, _ = _halves(value, dim)
    return (a * e.sigmoid(b)).to(call.dtype)


@lowers("glu_backward")
def _glu_backward(call: Call, gradient: Value, value: Value, dim: int) -> Value:
    a, b, dim = _halves(value, dim)
    gate, g = e.sigmoid(b), gradient.to(a.dtype)
    made = e.concatenate([g * gate, g * a * gate * (1 - gate)], dim)
    return made.to(call.dtype)


def _mean_slope(lower: float, upper: float, training: bool) -> float:
    if training:
        raise NotImplementedError("rrelu with training=True: it draws its slopes at random")
    return (lower + upper) / 2


def _rrelu(
    call: Call,
    value: Value,
    noise: Value,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Value:
    x = value.to(_wide(value.dtype))
    return e.select(x > 0, x, x * _mean_slope(lower, upper, training)).to(value.dtype)


@lowers("rrelu_with_noise_functional")
def _rrelu_functional(
    call: Call, value: Value, noise: Value, *args: Any, **kwargs: Any
) -> tuple[Value, Value]:
    return _rrelu(call, value, noise, *args, **kwargs), noise


@lowers("rrelu_with_noise_backward")
def _rrelu_backward(
    call: Call,
    gradient: Value,
    value: Value,
    noise: Value,
    lower: float,
    upper: float,
    training: bool,
    self_is_result: bool,
) -> Value:
    dtype = _wide(gradient.dtype)
    g, x = gradient.to(dtype), value.to(dtype)
    return e.select(x > 0, g, g * _mean_slope(lower, upper, training)).to(call.dtype)
