"""Distances between rows, in any norm: `torch.cdist` and `torch.pdist` with their gradients."""

from __future__ import annotations

import math

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.registry import Call, lowers


def _norm(difference: Value, p: float) -> Value:
    """Reduce the last dimension. No products of rows instead of differences: those cancel."""
    last = [difference.rank - 1]
    size = e.absolute(difference)
    if p == 0:  # counts what differs; not-a-number stays
        return e.reduce_sum(e.minimum(e.ceil(size), 1), last)
    if p == 1:
        return e.reduce_sum(size, last)
    if p == 2:
        return e.sqrt(e.reduce_sum(size * size, last))
    if math.isinf(p):
        return e.reduce(size, 0, last, e.maximum)
    return e.reduce_sum(size**p, last) ** (1 / p)


def _norm_gradient(gradient: Value, difference: Value, distance: Value, p: float) -> Value:
    """Compute the gradient of `_norm`; zero where it has none."""
    size, direction = e.absolute(difference), e.sign(difference)
    if p == 0:
        return e.full_like(difference, 0)
    if p == 1:
        return gradient * direction
    if math.isinf(p):
        return gradient * direction * size.eq(distance).to(size.dtype)
    nowhere = e.absolute(distance).eq(0)
    nowhere = nowhere | size.eq(0) if p < 2 else nowhere
    share = difference / distance if p == 2 else direction * (size / distance) ** (p - 1)
    return e.select(nowhere, 0.0, gradient * share)


def _between(first: Value, second: Value) -> Value:
    """Subtract each row of one from each of the other: (..., P, M) and (..., R, M)."""
    return e.expand_dims(first, [first.rank - 1]) - e.expand_dims(second, [second.rank - 2])


@lowers("_cdist_forward")
def _cdist(call: Call, first: Value, second: Value, p: float, compute_mode: int | None) -> Value:
    return _norm(_between(first, second), p)


@lowers("_cdist_backward")
def _cdist_backward(
    call: Call, gradient: Value, first: Value, second: Value, p: float, distance: Value
) -> Value:
    if not distance.numel:  # PyTorch then leaves out what it otherwise does before: to broadcast
        return e.full(call.shape, 0, call.dtype)
    column = [distance.rank]
    made = _norm_gradient(
        e.expand_dims(gradient, column),
        _between(first, second),
        e.expand_dims(distance, column),
        p,
    )
    return e.reduce_sum(made, [made.rank - 2])


def _pairs(rows: int) -> torch.Tensor:
    """Return the indices of the first and of the second row of each pair."""
    return torch.triu_indices(rows, rows, offset=1)


def _pair_differences(value: Value) -> Value:
    first, second = (e.take(value, 0, e.literal(each)) for each in _pairs(value.shape[0]))
    return first - second


@lowers("_pdist_forward")
def _pdist(call: Call, value: Value, p: float = 2.0) -> Value:
    return _norm(_pair_differences(value), p)


@lowers("_pdist_backward")
def _pdist_backward(call: Call, gradient: Value, value: Value, p: float, distance: Value) -> Value:
    """Add each pair's gradient to its first row and subtract it from its second."""
    made = _norm_gradient(
        e.expand_dims(gradient, [1]), _pair_differences(value), e.expand_dims(distance, [1]), p
    )
    return e.scatter(
        e.full_like(value, 0),
        e.literal(_pairs(value.shape[0]).reshape(-1, 1)),
        e.concatenate([made, -made], 0),
        lambda old, new: old + new,
        window_dims=[1],
        inserted=[0],
        scatter_dims=[0],
    )
