"""Batch norm and its backward.

Statistics are per channel (dimension 1). Variants that write the running statistics in place have
no rule: a functional graph contains the variant that returns them.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.ops.norm import Results, affine, input_gradient, rounded
from torchneuron.lowering.ops.reduce import variance_and_mean, widened
from torchneuron.lowering.registry import Call, lowers


def _batch_dims(value: Value) -> list[int]:
    return [dim for dim in range(value.rank) if dim != 1]


def _per_channel(parameter: Value, like: Value) -> Value:
    shape = [parameter.numel if dim == 1 else 1 for dim in range(like.rank)]
    return e.reshape(widened(parameter), shape)


def _known(call: Call, name: str, parameter: Value | None) -> Value:
    if parameter is None:
        raise NotImplementedError(f"{call.target} without {name}, of which the CPU needs it")
    return parameter


def _normalized(
    value: Value, weight: Value | None, bias: Value | None, mean: Value, rstd: Value
) -> Value:
    centred = (value - _per_channel(mean, value)) * _per_channel(rstd, value)
    return _affine(centred, weight, bias)


def _affine(value: Value, weight: Value | None, bias: Value | None) -> Value:
    by_channel = [None if each is None else _per_channel(each, value) for each in (weight, bias)]
    return affine(value, *by_channel)


def _with_batch_statistics(
    value: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    """Return the output, mean, reciprocal deviation and unbiased variance of a batch."""
    value = widened(value)
    dims = _batch_dims(value)
    variance, mean = variance_and_mean(value, dims)
    count = value.numel // value.shape[1] if value.shape[1] else 0
    rstd = e.rsqrt(variance + eps)
    unbiased = variance * count / max(count - 1, 0)
    return _normalized(value, weight, bias, mean, rstd), mean, rstd, unbiased


def _with_running_statistics(
    call: Call,
    value: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    eps: float,
) -> list[Value]:
    """Normalize by given statistics; what would be saved for backward is empty, as on the CPU."""
    mean = widened(_known(call, "running_mean", running_mean))
    variance = widened(_known(call, "running_var", running_var))
    made = _normalized(widened(value), weight, bias, mean, e.rsqrt(variance + eps))
    saved = [e.full(each.shape, 0, each.dtype) for each in call.results[1:3]]
    return [made, *saved]


@lowers("native_batch_norm")
def _native_batch_norm(
    call: Call,
    value: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Results:
    if not training:
        made = _with_running_statistics(call, value, weight, bias, running_mean, running_var, eps)
        return rounded(call, made)
    if running_mean is not None or running_var is not None:
        raise NotImplementedError("native_batch_norm in training writes its running statistics")
    return rounded(call, _with_batch_statistics(value, weight, bias, eps)[:3])


@lowers("_native_batch_norm_legit.no_stats")
def _without_running(
    call: Call,
    value: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Results:
    return rounded(call, _with_batch_statistics(value, weight, bias, eps)[:3])


@lowers("_native_batch_norm_legit_no_training")
def _without_training(
    call: Call,
    value: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> Results:
    made = _with_running_statistics(call, value, weight, bias, running_mean, running_var, eps)
    return rounded(call, made)


@lowers("_batch_norm_no_update")
def _without_update(
    call: Call,
    value: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    momentum: float,
    eps: float,
) -> Results:
    made = _with_running_statistics(call, value, weight, bias, running_mean, running_var, eps)
    return rounded(call, [*made, _reserve(call)])


def _reserve(call: Call) -> Value:
    """Return the workspace that only cuDNN uses."""
    return e.full(call.results[3].shape, 0, call.results[3].dtype)


@lowers("_native_batch_norm_legit_functional")
def _functional(
    call: Call,
    value: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> Results:
    if not training:
        made = _with_running_statistics(call, value, weight, bias, running_mean, running_var, eps)
        return rounded(call, [*made, running_mean, running_var])
    normalized, running = _updated(value, weight, bias, running_mean, running_var, momentum, eps)
    return rounded(call, [*normalized, *running])


@lowers("_batch_norm_with_update_functional")
def _functional_update(
    call: Call,
    value: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> Results:
    normalized, running = _updated(value, weight, bias, running_mean, running_var, momentum, eps)
    return rounded(call, [*normalized, _reserve(call), *running])


def _updated(
    value: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> tuple[list[Value], list[Value]]:
    """Normalize by the batch; return output, mean and 1/std, and the running statistics moved."""
    output, mean, rstd, unbiased = _with_batch_statistics(value, weight, bias, eps)
    running = [_moved(running_mean, mean, momentum), _moved(running_var, unbiased, momentum)]
    return [output, mean, rstd], running


def _moved(running: Value, seen: Value, momentum: float) -> Value:
    return widened(running) * (1 - momentum) + seen * momentum


@lowers("native_batch_norm_backward")
def _batch_norm_backward(
    call: Call,
    grad: Value,
    value: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    save_mean: Value | None,
    save_invstd: Value | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Results:
    grad, value = widened(grad), widened(value)
    dims = _batch_dims(value)
    if train:
        mean = widened(_known(call, "save_mean", save_mean))
        rstd = widened(_known(call, "save_invstd", save_invstd))
    else:
        mean = widened(_known(call, "running_mean", running_mean))
        rstd = e.rsqrt(widened(_known(call, "running_var", running_var)) + eps)
    spread = _per_channel(rstd, value)
    normal = (value - _per_channel(mean, value)) * spread
    scaled = _affine(grad, weight, None)
    by_input = input_gradient(scaled, normal, spread, dims) if train else scaled * spread
    made = [by_input, e.reduce_sum(grad * normal, dims), e.reduce_sum(grad, dims)]
    return rounded(call, made, output_mask)


@lowers("batch_norm_backward")
def _batch_norm_backward_with_reserve(
    call: Call,
    grad: Value,
    value: Value,
    weight: Value,
    running_mean: Value | None,
    running_var: Value | None,
    save_mean: Value | None,
    save_var: Value | None,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: Value,
) -> Results:
    statistics = (running_mean, running_var, save_mean, save_var)
    return _batch_norm_backward(call, grad, value, weight, *statistics, update, eps, output_mask)
