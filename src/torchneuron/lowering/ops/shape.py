"""Reshaping and reordering dimensions, and the views that read along them.

A program's values have no strides: a view is the values it would show, in row-major order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.registry import Call, lowers


@lowers(
    *"view view_copy reshape _unsafe_view _reshape_alias unsqueeze".split(),
    *"squeeze squeeze.dim squeeze.dims".split(),
)
def _reshape(call: Call, x: Value, *_: Any) -> Value:
    return e.reshape(x, call.shape)


@lowers(
    *"clone alias detach lift lift_fresh lift_fresh_copy contiguous".split(),
    *"resolve_conj resolve_neg".split(),
)
def _same(_call: Call, x: Value, **_: Any) -> Value:
    return x


@lowers("permute", "permute_copy")
def _permute(_call: Call, x: Value, dims: Sequence[int]) -> Value:
    return e.transpose(x, dims)


@lowers("transpose.int")
def _transpose(_call: Call, x: Value, first: int, second: int) -> Value:
    order = list(range(x.rank))
    if order:
        order[first], order[second] = order[second], order[first]
    return e.transpose(x, order)


@lowers("t")
def _t(_call: Call, x: Value) -> Value:
    return e.transpose(x, range(x.rank)[::-1])


@lowers("expand")
def _expand(call: Call, x: Value, _size: Sequence[int], *, implicit: bool = False) -> Value:
    return e.broadcast_to(x, call.shape)


@lowers("repeat")
def _repeat(call: Call, x: Value, repeats: Sequence[int]) -> Value:
    """Repeat whole dimensions: each gets a new one in front of it that is then merged into it."""
    sizes = (*[1] * (len(repeats) - x.rank), *x.shape)
    spread = [each for pair in zip(repeats, sizes, strict=True) for each in pair]
    lined_up = e.reshape(x, [each for size in sizes for each in (1, size)])
    return e.reshape(e.broadcast_to(lined_up, spread), call.shape)


@lowers("flip")
def _flip(_call: Call, x: Value, dims: Sequence[int]) -> Value:
    return e.reverse(x, sorted({dim % x.rank for dim in dims})) if x.rank else x


@lowers("roll")
def _roll(_call: Call, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    if not dims:  # all elements in a row
        return e.reshape(_roll(_call, e.reshape(x, (x.numel,)), shifts, [0]), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        dim = dim % x.rank
        size = x.shape[dim]
        cut = -shift % size if size else 0
        if cut:
            x = e.concatenate([e.slice_dim(x, dim, cut, size), e.slice_dim(x, dim, 0, cut)], dim)
    return x


def _to_back(x: Value, first: int, second: int) -> Value:
    """Move two dimensions to the end."""
    first, second = first % x.rank, second % x.rank
    others = [dim for dim in range(x.rank) if dim not in (first, second)]
    return e.transpose(x, [*others, first, second])


@lowers("diagonal")
def _diagonal(call: Call, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Take a diagonal: in a flattened matrix its elements are one row and one column apart."""
    x = _to_back(x, dim1, dim2)
    rows, columns = x.shape[-2:]
    length = call.shape[-1]
    if not length:
        return e.full(call.shape, 0, call.dtype)
    start = offset if offset > 0 else -offset * columns
    stop = start + (length - 1) * (columns + 1) + 1
    flat = e.reshape(x, (*x.shape[:-2], rows * columns))
    return e.slice_dim(flat, flat.rank - 1, start, stop, columns + 1)


@lowers("diagonal_scatter")
def _diagonal_scatter(
    call: Call, x: Value, new: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    """Replace a diagonal: spread the new elements over a flattened matrix, then choose by mask."""
    moved = _to_back(x, dim1, dim2)
    rows, columns = moved.shape[-2:]
    length: int = new.shape[-1]
    if not length:
        return x
    before = offset if offset > 0 else -offset * columns
    after = rows * columns - before - (length - 1) * (columns + 1) - 1
    none = [0] * (new.rank - 1)
    spread = e.pad(new, 0, [*none, before], [*none, after], [*none, columns])
    down, across = (e.iota((rows, columns), dim) for dim in range(2))
    made = e.select(across.eq(down + offset), e.reshape(spread, moved.shape), moved)
    order = list(range(x.rank - 2))
    for place, back in sorted([(dim1 % x.rank, x.rank - 2), (dim2 % x.rank, x.rank - 1)]):
        order.insert(place, back)
    return e.transpose(made, order)


@lowers("unfold")
def _unfold(_call: Call, x: Value, dim: int, size: int, step: int) -> Value:
    """Write every window of a dimension out; its elements become a new last dimension."""
    if not x.rank:
        return e.reshape(x, (size,))
    dim %= x.rank
    windows = (x.shape[dim] - size) // step + 1
    index = e.iota((windows, size), 0) * step + e.iota((windows, size), 1)
    taken = e.take(x, dim, index)
    order = [each for each in range(taken.rank) if each != dim + 1]
    return e.transpose(taken, [*order, dim + 1])


def _storage(x: Value, fake: torch.Tensor) -> Value:
    """Return a tensor's elements in the order its storage has them."""
    order = sorted(range(x.rank), key=lambda dim: (fake.stride()[dim], x.shape[dim]), reverse=True)
    expected = 1
    for dim in reversed(order):
        if x.shape[dim] != 1 and fake.stride(dim) != expected and x.numel:
            raise NotImplementedError(
                f"as_strided of a tensor with gaps: sizes {tuple(x.shape)}, strides {fake.stride()}"
            )
        expected *= x.shape[dim]
    return e.reshape(e.transpose(x, order), (x.numel,))


def _storage_index(
    fake: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> Value:
    """Compute where in the storage each element of a strided view is."""
    first = 0 if offset is None else offset - int(fake.storage_offset())
    last = first + sum((n - 1) * each for n, each in zip(size, stride, strict=True))
    if math.prod(size) and not 0 <= first <= last < fake.numel():
        raise NotImplementedError(f"as_strided beyond a tensor: elements {first} to {last}")
    index = e.full(size, first, torch.int64)
    for dim, each in enumerate(stride):
        index = index + e.iota(size, dim) * each
    return index


@lowers("as_strided", "as_strided_copy")
def _as_strided(
    call: Call, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Value:
    index = _storage_index(call.args[0], size, stride, offset)
    return e.take(_storage(x, call.args[0]), 0, index)


@lowers("as_strided_scatter")
def _as_strided_scatter(
    call: Call,
    x: Value,
    new: Value,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int | None = None,
) -> Value:
    fake = call.args[0]
    if not fake.is_contiguous():
        raise NotImplementedError(f"as_strided_scatter into strides {fake.stride()}")
    index = _storage_index(fake, size, stride, offset)
    flat = e.scatter(
        _storage(x, fake),
        e.reshape(index, (index.numel, 1)),
        e.reshape(new.to(x.dtype), (index.numel,)),
        lambda _, update: update,
        window_dims=[],
        inserted=[0],
        scatter_dims=[0],
    )
    return e.reshape(flat, x.shape)
