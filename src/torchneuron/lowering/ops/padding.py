"""Padding with a number, by reflection and by the edge, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.registry import Call, lowers


def _per_dim(rank: int, padding: Sequence[int]) -> list[tuple[int, int, int]]:
    """Pair PyTorch's flat list, last dimension first, as (dimension, before, after)."""
    return [
        (rank - 1 - place, padding[2 * place], padding[2 * place + 1])
        for place in range(len(padding) // 2)
    ]


@lowers("constant_pad_nd")
def _constant_pad(_call: Call, x: Value, padding: Sequence[int], fill: Any = 0) -> Value:
    low, high = [0] * x.rank, [0] * x.rank
    for dim, before, after in _per_dim(x.rank, padding):
        low[dim], high[dim] = before, after
    return e.pad(x, fill, low, high)


def _reflected(x: Value, dim: int, before: int, after: int) -> tuple[Value, Value]:
    size = x.shape[dim]
    left = e.slice_dim(x, dim, 1, before + 1)
    right = e.slice_dim(x, dim, size - 1 - after, size - 1)
    return e.reverse(left, [dim]), e.reverse(right, [dim])


def _replicated(x: Value, dim: int, before: int, after: int) -> tuple[Value, Value]:
    size = x.shape[dim]
    edges = []
    for place, count in ((0, before), (size - 1, after)):
        shape = [count if each == dim else s for each, s in enumerate(x.shape)]
        edges.append(e.broadcast_to(e.slice_dim(x, dim, place, place + 1), shape))
    return edges[0], edges[1]


Sides = Callable[[Value, int, int, int], tuple[Value, Value]]


def _pad_by(sides: Sides) -> Callable[..., Value]:
    def rule(_call: Call, x: Value, padding: Sequence[int]) -> Value:
        for dim, before, after in _per_dim(x.rank, padding):
            left, right = sides(x, dim, max(before, 0), max(after, 0))
            parts = [each for each in (left, x, right) if each.shape[dim]]
            x = e.concatenate(parts, dim)
            first, last = max(-before, 0), x.shape[dim] - max(-after, 0)
            x = e.slice_dim(x, dim, first, last)  # a negative number removes
        return x

    return rule


def _at(x: Value, size: int, dim: int, start: int) -> Value:
    """Surround by zeros, up to a size of one dimension."""
    low, high = [0] * x.rank, [0] * x.rank
    low[dim], high[dim] = start, size - start - x.shape[dim]
    return e.pad(x, 0, low, high)


def _reflected_backward(grad: Value, size: int, dim: int, before: int, after: int) -> list[Value]:
    end = before + size
    left = e.reverse(e.slice_dim(grad, dim, 0, before), [dim])
    right = e.reverse(e.slice_dim(grad, dim, end, end + after), [dim])
    return [_at(left, size, dim, 1), _at(right, size, dim, size - 1 - after)]


def _replicated_backward(grad: Value, size: int, dim: int, before: int, after: int) -> list[Value]:
    end = before + size
    left = e.reduce_sum(e.slice_dim(grad, dim, 0, before), [dim], keepdim=True)
    right = e.reduce_sum(e.slice_dim(grad, dim, end, end + after), [dim], keepdim=True)
    return [_at(left, size, dim, 0), _at(right, size, dim, size - 1)]


def _pad_backward(
    sides: Callable[[Value, int, int, int, int], list[Value]],
) -> Callable[..., Value]:
    def rule(call: Call, grad: Value, x: Value, padding: Sequence[int]) -> Value:
        half = grad.is_float and grad.dtype.itemsize == 2  # sums of halves round once
        grad = grad.to(torch.float32) if half else grad
        for dim, before, after in _per_dim(x.rank, padding):
            size = x.shape[dim]
            removed = (max(-before, 0), max(-after, 0))
            low, high = [0] * x.rank, [0] * x.rank
            low[dim], high[dim] = removed
            grad = e.pad(grad, 0, low, high)
            before, after = max(before, 0), max(after, 0)
            middle = e.slice_dim(grad, dim, before, before + size)
            for side in sides(grad, size, dim, before, after):
                middle = middle + side
            grad = middle
        return grad.to(call.dtype)

    return rule


for _dims in (1, 2, 3):
    lowers(f"reflection_pad{_dims}d")(_pad_by(_reflected))
    lowers(f"replication_pad{_dims}d")(_pad_by(_replicated))
    lowers(f"reflection_pad{_dims}d_backward")(_pad_backward(_reflected_backward))
    lowers(f"replication_pad{_dims}d_backward")(_pad_backward(_replicated_backward))
