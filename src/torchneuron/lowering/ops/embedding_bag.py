"""Embedding bags: rows of a table, reduced over runs of indices."""

from __future__ import annotations

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.ops.index import Places, slices
from torchneuron.lowering.registry import Call, lowers

_SUM, _MEAN, _MAX = range(3)


def _wide(value: Value) -> Value:
    return value.to(torch.float32) if value.dtype.itemsize == 2 else value


def _add(old: Value, new: Value) -> Value:
    return old + new


def _bag_of(offsets: Value, count: int, bags: int) -> Value:
    """Return for each index the bag it is in: the last one that begins no later."""
    shape = (count, bags)
    places = e.iota(shape, 0, offsets.dtype)
    starts = e.broadcast_to(e.slice_dim(offsets, 0, 0, bags), shape)
    return e.reduce_sum((starts <= places).to(torch.int64), [1]) - 1


def _counting(count: int) -> torch.dtype:
    """Return a dtype exact to a count, float32 where it is: chips accumulate no integers."""
    return torch.float32 if count <= 1 << 24 else torch.int64


def _count(places: Places, used: Value, size: int) -> Value:
    single = Places(places.vectors, (0,), ())
    dtype = _counting(used.numel)
    return single.write(e.full((size,), 0, dtype), used.to(dtype), _add).to(torch.int64)


def _column(value: Value, dtype: torch.dtype) -> Value:
    return e.reshape(value.to(dtype), (value.numel, 1))


def _fitted(value: Value, promised: torch.Tensor) -> Value:
    """Give a result that only the gradient reads the size PyTorch promises for the device.

    The CPU leaves some empty; `bag_size` elsewhere has one element more with the last offset.
    """
    shape = tuple(promised.shape)
    if value.rank != len(shape):
        return e.full(shape, 0, promised.dtype)
    high = [new - old for old, new in zip(value.shape, shape, strict=True)]
    return e.pad(value, 0, [0] * value.rank, high).to(promised.dtype)


@lowers("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    call: Call,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Value, ...]:
    """Reduce the rows of each bag; empty bags are zero, and padding does not count."""
    bags, width = call.shape
    table, used = _wide(weight), indices.ne(padding_idx)
    bag = _bag_of(offsets, indices.numel, bags)
    target = slices((bags, width), 0, e.select(used, bag, bags))  # XLA drops what is outside
    sizes = _count(target, used, bags)
    zeros = e.full((bags, width), 0, table.dtype)
    chosen = e.full((bags, width), 0, torch.int64)
    rows = zeros if not indices.numel else e.take(table, 0, indices)
    if per_sample_weights is not None:
        rows = rows * _column(per_sample_weights, rows.dtype)
    if not indices.numel:
        made = zeros
    elif mode == _MAX:
        made, chosen = _largest(target, rows, indices, zeros, bag)
    else:
        made = target.write(zeros, rows, _add)
        if mode == _MEAN:
            made = made / _column(e.maximum(sizes, 1), made.dtype)
    kept = [
        _fitted(value, call.results[each])
        for each, value in enumerate((bag, sizes, chosen), start=1)
    ]
    return made.to(weight.dtype), *kept


def _largest(
    target: Places, rows: Value, indices: Value, zeros: Value, bag: Value
) -> tuple[Value, Value]:
    """Take the largest element per column, and the index of the first row that has it."""
    lowest = e.full_like(zeros, e.lowest(zeros.dtype))
    largest = target.write(lowest, rows, e.maximum)
    count = indices.numel
    wins = rows.eq(e.take(largest, 0, bag)) | e.isnan(rows)
    order = e.select(wins, e.iota(rows.shape, 0, _counting(count)), count)
    first = target.write(e.full(zeros.shape, count, order.dtype), order, e.minimum)
    found = first < count
    places = e.select(found, first, 0).to(torch.int64)
    chosen = e.select(found, e.take(indices.to(torch.int64), 0, places), 0)
    return e.select(found, largest, 0), chosen


@lowers("_embedding_bag_backward")
def _embedding_bag_backward(
    call: Call,
    gradient: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    bag_size: Value,
    maximum_indices: Value,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Value | None,
    padding_idx: int = -1,
) -> Value:
    """Spread each bag's gradient over its rows, for maxima over the rows that won.

    `scale_grad_by_freq` divides by how often a row's own index occurs, as `embedding` does; the
    CPU's loop divides by the count of another row.
    """
    if sparse:
        raise NotImplementedError("embedding_bag with sparse=True: its gradient is sparse")
    bags, width = gradient.shape
    g = _wide(gradient)
    zeros = e.full((num_weights, width), 0, g.dtype)
    if not indices.numel or not bags:
        return zeros.to(call.dtype)
    used = indices.ne(padding_idx)
    target = slices((num_weights, width), 0, e.select(used, indices, num_weights))
    bag = _bag_of(offsets, indices.numel, bags)
    sizes = _count(slices((bags,), 0, e.select(used, bag, bags)), used, bags)
    if mode == _MAX:
        columns = e.iota((bags, width), 1, maximum_indices.dtype)
        pair = [e.reshape(each, (bags, width, 1)) for each in (maximum_indices, columns)]
        winners = Places(e.concatenate(pair, 2), (0, 1), ())
        g = e.select(e.reshape(sizes, (bags, 1)) > 0, g, 0)
        return winners.write(zeros, g, _add).to(call.dtype)
    if mode == _MEAN:
        g = g / _column(e.maximum(sizes, 1), g.dtype)
    rows = e.take(g, 0, bag)
    if per_sample_weights is not None:
        rows = rows * _column(per_sample_weights, g.dtype)
    if scale_grad_by_freq:
        counts = e.take(_count(target, used, num_weights), 0, indices)
        rows = rows / _column(e.maximum(counts, 1), g.dtype)
    return target.write(zeros, rows, _add).to(call.dtype)


@lowers("_embedding_bag_per_sample_weights_backward")
def _embedding_bag_per_sample_weights_backward(
    call: Call,
    gradient: Value,
    weight: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    mode: int,
    padding_idx: int = -1,
) -> Value:
    """Multiply each row by its bag's gradient."""
    if not indices.numel:
        return e.full(call.shape, 0, call.dtype)
    bag = _bag_of(offsets, indices.numel, gradient.shape[0])
    product = e.take(_wide(gradient), 0, bag) * e.take(_wide(weight), 0, indices)
    made = e.reduce_sum(product, [1])
    return e.select(indices.ne(padding_idx), made, 0).to(call.dtype)
