"""Writing at indices: `index_put`, `scatter`, `index_add` and their like.

Updates go in order, so of several at one place the last wins, as on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Scalar, Value
from torchneuron.lowering.ops.index import (
    Places,
    advanced,
    at_least_1d,
    is_mask,
    points,
    slices,
)
from torchneuron.lowering.registry import Call, lowers


def _replace(old: Value, new: Value) -> Value:
    return new


def _add(old: Value, new: Value) -> Value:
    return old + new


def _multiply(old: Value, new: Value) -> Value:
    return old * new


# Per reduction: how two numbers combine, and the number that changes nothing.
_REDUCTIONS: dict[str, tuple[Callable[[Value, Value], Value], Callable[[torch.dtype], Scalar]]] = {
    "sum": (_add, lambda dtype: 0),
    "add": (_add, lambda dtype: 0),
    "mean": (_add, lambda dtype: 0),
    "prod": (_multiply, lambda dtype: 1),
    "multiply": (_multiply, lambda dtype: 1),
    "amax": (e.maximum, e.lowest),
    "amin": (e.minimum, e.highest),
}


def _accumulate(
    value: Value, places: Places, updates: Value, reduction: str, *, include_self: bool = True
) -> Value:
    """Combine updates into a tensor; half types accumulate in float32 and round once.

    Without `include_self`, elements that updates reach start from the reduction's neutral number.
    """
    combine, neutral = _REDUCTIONS[reduction]
    half = value.dtype in (torch.bfloat16, torch.float16)
    dtype = torch.float32 if half else value.dtype
    made, updates = value.to(dtype), updates.to(dtype)
    if not include_self:
        made = places.write(made, e.full_like(updates, neutral(dtype)), _replace)
    made = places.write(made, updates, combine)
    if reduction == "mean":
        start = e.full(value.shape, int(include_self), dtype)
        counts = places.write(start, e.full_like(updates, 1), _add)
        made = _divide_down(made, e.maximum(counts, 1))
    return made.to(value.dtype)


def _divide_down(total: Value, count: Value) -> Value:
    if total.is_float or total.is_complex:
        return total / count
    quotient = total / count
    return e.select(e.remainder(total, count) < 0, quotient - 1, quotient)


def _order_of_true(mask: Value) -> Value:
    """Number a mask's true elements from zero, in row-major order; the others get any number."""
    count = mask.numel
    made = e.reshape(mask, (count,)).to(torch.int32)
    distance = 1
    while distance < count:  # each step doubles how many elements a sum covers
        made = made + e.pad(e.slice_dim(made, 0, 0, count - distance), 0, [distance], [0])
        distance *= 2
    return made - 1


# -- advanced indexing


@lowers("index_put", "_unsafe_index_put")
def _index_put(
    call: Call,
    value: Value,
    indices: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
) -> Value:
    used = [dim for dim, each in enumerate(indices) if each is not None]
    if len(used) == 1 and is_mask(mask := indices[used[0]]):
        return _put_masked(value, used[0], mask, values, accumulate)
    places, shape = advanced(value.shape, indices)
    updates = e.broadcast_to(values.to(value.dtype), shape)
    if accumulate:
        return _accumulate(value, places, updates, "sum")
    return places.write(value, updates, _replace)


def _put_masked(value: Value, dim: int, mask: Value, values: Value, accumulate: bool) -> Value:
    """Assign through one mask, whose dimensions begin at `dim`; all sizes stay static.

    What the mask selects has one dimension in the place of the mask's. Where `values` has that
    dimension, the k-th selected position takes the k-th of them.
    """
    after = value.rank - dim - mask.rank
    place = values.rank - after - 1
    if place >= 0:
        if not values.shape[place]:
            return value
        order = e.full(mask.shape, 0, torch.int32)
        if values.shape[place] != 1:
            order = e.reshape(_order_of_true(mask.ne(0)), mask.shape)
        values = e.take(values, place, order)
    filled = e.broadcast_to(values.to(value.dtype), value.shape)
    chosen = e.reshape(mask.ne(0), (*mask.shape, *[1] * after))
    return e.select(chosen, value + filled if accumulate else filled, value)


@lowers("put")
def _put(call: Call, value: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    flat = e.reshape(value, (value.numel,))
    places = slices(flat.shape, 0, e.reshape(index, (index.numel,)))
    updates = e.reshape(source, (index.numel,))
    made = (
        _accumulate(flat, places, updates, "sum")
        if accumulate
        else places.write(flat, updates, _replace)
    )
    return e.reshape(made, value.shape)


# -- element by element along a dimension


def _scatter(
    value: Value,
    dim: int,
    index: Value,
    source: Value | Scalar,
    reduction: str | None,
    include_self: bool = True,
) -> Value:
    operand, index = at_least_1d(value), at_least_1d(index)
    if not index.numel:
        return value
    places = points(operand.shape, dim % operand.rank, index)
    if isinstance(source, Value):
        source = at_least_1d(source)
        updates = e.slice_all(source, [0] * index.rank, index.shape, [1] * index.rank)
    else:
        updates = e.full(index.shape, source, value.dtype)
    if reduction is None:
        made = places.write(operand, updates, _replace)
    else:
        made = _accumulate(operand, places, updates, reduction, include_self=include_self)
    return e.reshape(made, value.shape)


@lowers("scatter.src", "scatter.value")
def _scatter_replace(
    call: Call, value: Value, dim: int, index: Value, source: Value | Scalar
) -> Value:
    return _scatter(value, dim, index, source, None)


@lowers("scatter.reduce", "scatter.value_reduce")
def _scatter_with(
    call: Call, value: Value, dim: int, index: Value, source: Value | Scalar, *, reduce: str
) -> Value:
    return _scatter(value, dim, index, source, reduce)


@lowers("scatter_add")
def _scatter_add(call: Call, value: Value, dim: int, index: Value, source: Value) -> Value:
    return _scatter(value, dim, index, source, "sum")


@lowers("scatter_reduce.two")
def _scatter_reduce(
    call: Call,
    value: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> Value:
    return _scatter(value, dim, index, source, reduce, include_self)


# -- slice by slice along a dimension


def _write_slices(
    value: Value,
    dim: int,
    index: Value,
    source: Value,
    reduction: str | None,
    include_self: bool = True,
) -> Value:
    operand, index = at_least_1d(value), at_least_1d(index)
    dim %= operand.rank
    shape = [index.numel if each == dim else s for each, s in enumerate(operand.shape)]
    updates = e.broadcast_to(at_least_1d(source), shape)
    places = slices(operand.shape, dim, index)
    if reduction is None:
        made = places.write(operand, updates, _replace)
    else:
        made = _accumulate(operand, places, updates, reduction, include_self=include_self)
    return e.reshape(made, value.shape)


@lowers("index_add")
def _index_add(
    call: Call, value: Value, dim: int, index: Value, source: Value, *, alpha: Scalar = 1
) -> Value:
    scaled = source if alpha == 1 else source * alpha
    return _write_slices(value, dim, index, scaled, "sum")


@lowers("index_copy")
def _index_copy(call: Call, value: Value, dim: int, index: Value, source: Value) -> Value:
    return _write_slices(value, dim, index, source, None)


@lowers("index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_fill(call: Call, value: Value, dim: int, index: Value, fill: Value | Scalar) -> Value:
    filler = fill.to(value.dtype) if isinstance(fill, Value) else e.full((), fill, value.dtype)
    return _write_slices(value, dim, index, filler, None)


@lowers("index_reduce")
def _index_reduce(
    call: Call,
    value: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> Value:
    return _write_slices(value, dim, index, source, reduce, include_self)


# -- by a mask


@lowers("masked_scatter")
def _masked_scatter(call: Call, value: Value, mask: Value, source: Value) -> Value:
    value, mask = e.broadcast_to(value, call.shape), e.broadcast_to(mask, call.shape)
    if not source.numel or not value.numel:
        return value
    order = e.reshape(_order_of_true(mask), call.shape)
    taken = e.take(e.reshape(source, (source.numel,)), 0, order)
    return e.select(mask, taken, value)


@lowers("masked_scatter_backward")
def _masked_scatter_backward(
    call: Call, gradient: Value, mask: Value, sizes: Sequence[int]
) -> Value:
    """Gather what the mask selects to the front of a tensor of zeros."""
    count = math.prod(call.shape)
    mask = e.broadcast_to(mask, gradient.shape)
    order = _order_of_true(mask)
    chosen = e.reshape(mask, (mask.numel,))
    index = e.select(chosen, order, count)  # XLA drops an update outside the tensor
    zeros = e.full((count,), 0, call.dtype)
    places = Places(e.reshape(index, (mask.numel, 1)), (0,), ())
    flat = e.reshape(gradient, (mask.numel,))
    return e.reshape(places.write(zeros, flat, _replace), call.shape)
