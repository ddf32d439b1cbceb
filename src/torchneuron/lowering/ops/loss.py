"""Losses that gather by class; the others are elementwise and come apart well."""

from __future__ import annotations

import math

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.ops.reduce import widened
from torchneuron.lowering.registry import Call, lowers

# `at::Reduction`
_NONE, _MEAN = 0, 1


def _class_weights(weight: Value | None, target: Value, ignored: Value, like: Value) -> Value:
    """Return the weight of each target's class, zero where the target is ignored."""
    if weight is None:
        return (~ignored).to(like.dtype)
    safe = e.select(ignored, 0, target)
    return e.select(ignored, 0, e.take(weight.to(like.dtype), 0, safe))


def _at_target(value: Value, target: Value) -> Value:
    """Take the element of each target's class; classes are dimension 1, or 0 without a batch."""
    if not target.numel:  # XLA takes nothing from nothing
        return e.full(target.shape, 0, value.dtype)
    class_dim = min(value.rank - 1, 1)
    classes = value.shape[class_dim]
    inner = math.prod(value.shape[class_dim + 1 :])
    shape = (target.numel // inner, inner)
    place = (e.iota(shape, 0) * classes + e.reshape(target, shape)) * inner + e.iota(shape, 1)
    return e.reshape(e.take(e.reshape(value, (-1,)), 0, place), target.shape)


@lowers("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(
    call: Call,
    value: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Value, Value]:
    value, target = widened(value), target.to(torch.int64)
    ignored = target.eq(ignore_index)
    weights = _class_weights(weight, target, ignored, value)
    chosen = _at_target(value, e.select(ignored, 0, target))
    # Not a product alone: an ignored element may be infinite.
    losses = e.select(ignored, 0.0, -chosen * weights)
    kind = call.results[1].dtype
    if reduction == _NONE:
        return losses.to(call.dtype), e.full((), 0, kind)
    dims = range(target.rank)
    total_weight = e.reduce_sum(weights, dims)
    loss = e.reduce_sum(losses, dims)
    if reduction == _MEAN:
        loss = loss / total_weight
    return loss.to(call.dtype), total_weight.to(kind)


@lowers("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(
    call: Call,
    grad: Value,
    value: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignore_index: int,
    total_weight: Value,
) -> Value:
    grad, target = widened(grad), target.to(torch.int64)
    ignored = target.eq(ignore_index)
    scale = -grad * _class_weights(weight, target, ignored, grad)
    if reduction == _MEAN:
        scale = scale / widened(total_weight)
    scale = e.select(ignored, 0.0, scale)
    class_dim = min(value.rank - 1, 1)
    is_target = e.iota(value.shape, class_dim).eq(e.expand_dims(target, [class_dim]))
    scale = e.broadcast_to(scale, target.shape)
    return e.select(is_target, e.expand_dims(scale, [class_dim]), 0.0).to(call.dtype)
