"""Softmax and the normalizations that look at one sample: layer, group and RMS norm, with backward.

All compute in float32 for the half types and round results once, as the CPU does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.ops.reduce import mean_over, reduced_dims, variance_and_mean, widened
from torchneuron.lowering.registry import Call, lowers

Results = tuple[Value | None, ...]


def rounded(call: Call, made: Sequence[Value | None], mask: Sequence[bool] = ()) -> Results:
    """Give results the promised dtypes and shapes, None where the mask asks for none."""
    wanted = list(mask) or [True] * len(made)
    return tuple(
        e.reshape(value.to(promise.dtype), [int(size) for size in promise.shape])
        if want and value is not None
        else None
        for value, promise, want in zip(made, call.results, wanted, strict=True)
    )


# -- softmax


def _exponentials(value: Value, dims: Sequence[int]) -> tuple[Value, Value, Value]:
    """Return the shifted input, its exponentials, and their sums."""
    shifted = value - e.reduce_max(value, dims, keepdim=True)
    powers = e.exp(shifted)
    return shifted, powers, e.reduce_sum(powers, dims, keepdim=True)


@lowers("_softmax")
def _softmax(call: Call, value: Value, dim: int, half_to_float: bool) -> Value:
    _, powers, total = _exponentials(widened(value), reduced_dims(value, dim))
    return (powers / total).to(call.dtype)


@lowers("_safe_softmax")
def _safe_softmax(call: Call, value: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    """Answer zeros, not not-a-number, where everything is masked with negative infinity."""
    value = widened(value.to(call.dtype))
    dims = reduced_dims(value, dim)
    _, powers, total = _exponentials(value, dims)
    masked = e.reduce_max(value, dims, keepdim=True).eq(-math.inf)
    return e.select(masked, 0.0, powers / total).to(call.dtype)


@lowers("_log_softmax")
def _log_softmax(call: Call, value: Value, dim: int, half_to_float: bool) -> Value:
    shifted, _, total = _exponentials(widened(value), reduced_dims(value, dim))
    return (shifted - e.log(total)).to(call.dtype)


@lowers("_softmax_backward_data")
def _softmax_backward(
    call: Call, grad: Value, output: Value, dim: int, input_dtype: torch.dtype
) -> Value:
    grad, output = widened(grad), widened(output)
    total = e.reduce_sum(grad * output, reduced_dims(grad, dim), keepdim=True)
    return ((grad - total) * output).to(call.dtype)


@lowers("_log_softmax_backward_data")
def _log_softmax_backward(
    call: Call, grad: Value, output: Value, dim: int, input_dtype: torch.dtype
) -> Value:
    grad, output = widened(grad), widened(output)
    total = e.reduce_sum(grad, reduced_dims(grad, dim), keepdim=True)
    return (grad - e.exp(output) * total).to(call.dtype)


# -- what the normalizations share


def affine(value: Value, weight: Value | None, bias: Value | None) -> Value:
    """Scale and shift; both may be missing and broadcast."""
    if weight is not None:
        value = value * weight.to(value.dtype)
    return value if bias is None else value + bias.to(value.dtype)


def input_gradient(grad: Value, normal: Value, rstd: Value, dims: Sequence[int]) -> Value:
    """Differentiate `(x - mean) * rstd` by x, where both statistics depend on x through `dims`."""
    through_mean = mean_over(grad, dims, keepdim=True)
    through_rstd = mean_over(grad * normal, dims, keepdim=True)
    return rstd * (grad - through_mean - normal * through_rstd)


# -- layer norm


@lowers("native_layer_norm")
def _layer_norm(
    call: Call,
    value: Value,
    normalized_shape: Sequence[int],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> Results:
    value = widened(value)
    dims = range(value.rank - len(normalized_shape), value.rank)
    variance, mean = variance_and_mean(value, dims, keepdim=True)
    rstd = e.rsqrt(variance + eps)
    return rounded(call, [affine((value - mean) * rstd, weight, bias), mean, rstd])


@lowers("native_layer_norm_backward")
def _layer_norm_backward(
    call: Call,
    grad: Value,
    value: Value,
    normalized_shape: Sequence[int],
    mean: Value,
    rstd: Value,
    weight: Value | None,
    bias: Value | None,
    output_mask: Sequence[bool],
) -> Results:
    grad, value, mean, rstd = (widened(each) for each in (grad, value, mean, rstd))
    outer = value.rank - len(normalized_shape)
    normal = (value - mean) * rstd
    scaled = affine(grad, weight, None)
    made = [
        input_gradient(scaled, normal, rstd, range(outer, value.rank)),
        e.reduce_sum(grad * normal, range(outer)) if weight is not None else None,
        e.reduce_sum(grad, range(outer)) if bias is not None else None,
    ]
    return rounded(call, made, output_mask)


# -- RMS norm


def _rms(
    value: Value, normalized_shape: Sequence[int], weight: Value | None, eps: float | None
) -> tuple[Value, Value]:
    wide = widened(value)
    dims = range(wide.rank - len(normalized_shape), wide.rank)
    epsilon = torch.finfo(wide.dtype).eps if eps is None else eps
    rstd = e.rsqrt(mean_over(wide * wide, dims, keepdim=True) + epsilon)
    return affine(wide * rstd, weight, None), rstd


@lowers("rms_norm")
def _rms_norm(
    call: Call,
    value: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    eps: float | None = None,
) -> Value:
    return _rms(value, normalized_shape, weight, eps)[0].to(call.dtype)


@lowers("_fused_rms_norm")
def _fused_rms_norm(
    call: Call,
    value: Value,
    normalized_shape: Sequence[int],
    weight: Value | None,
    eps: float | None,
) -> Results:
    return rounded(call, _rms(value, normalized_shape, weight, eps))


@lowers("_fused_rms_norm_backward")
def _fused_rms_norm_backward(
    call: Call,
    grad: Value,
    value: Value,
    normalized_shape: Sequence[int],
    rstd: Value,
    weight: Value | None,
    output_mask: Sequence[bool],
) -> Results:
    grad, value, rstd = (widened(each) for each in (grad, value, rstd))
    outer = value.rank - len(normalized_shape)
    normal = value * rstd
    scaled = affine(grad, weight, None)
    through_rstd = mean_over(scaled * normal, range(outer, value.rank), keepdim=True)
    made = [
        rstd * (scaled - normal * through_rstd),
        e.reduce_sum(grad * normal, range(outer)) if weight is not None else None,
    ]
    return rounded(call, made, output_mask)


# -- group norm


def _by_channel(parameter: Value | None, group: int) -> Value | None:
    """Shape a per-channel parameter to broadcast against (sample, group, channel, place)."""
    return None if parameter is None else e.reshape(parameter, (group, -1, 1))


@lowers("native_group_norm")
def _group_norm(
    call: Call,
    value: Value,
    weight: Value | None,
    bias: Value | None,
    N: int,  # noqa: N803 (the schema's names)
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    eps: float,
) -> Results:
    value = e.reshape(widened(value), (N, group, C // group, HxW))
    variance, mean = variance_and_mean(value, [2, 3], keepdim=True)
    rstd = e.rsqrt(variance + eps)
    made = affine((value - mean) * rstd, _by_channel(weight, group), _by_channel(bias, group))
    return rounded(call, [made, mean, rstd])


@lowers("native_group_norm_backward")
def _group_norm_backward(
    call: Call,
    grad: Value,
    value: Value,
    mean: Value,
    rstd: Value,
    weight: Value | None,
    N: int,  # noqa: N803 (the schema's names)
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    output_mask: Sequence[bool],
) -> Results:
    shape = (N, group, C // group, HxW)
    grad, value = (e.reshape(widened(each), shape) for each in (grad, value))
    mean, rstd = (e.reshape(widened(each), (N, group, 1, 1)) for each in (mean, rstd))
    normal = (value - mean) * rstd
    scaled = affine(grad, _by_channel(weight, group), None)
    made: list[Any] = [
        input_gradient(scaled, normal, rstd, [2, 3]),
        e.reduce_sum(grad * normal, [0, 3]),
        e.reduce_sum(grad, [0, 3]),
    ]
    return rounded(call, made, output_mask)
