"""Pooling and interpolation whose windows differ from place to place: adaptive pools, antialiasing.

Each is a weighted sum of a few input elements per output element, one dimension at a time, by a
table that is known when the program is written. The gradient is the same, with the transposed
table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.ops.pool import Pair, add_at, fold, places
from torchneuron.lowering.ops.reduce import widened
from torchneuron.lowering.registry import Call, lowers

# Per output element: which input elements it is made of, with their weights.
Table = list[list[tuple[int, float]]]


def _windows(size: int, count: int) -> list[range]:
    """Return what each element of an adaptive pool covers."""
    return [range(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _mean_table(size: int, count: int) -> Table:
    return [[(place, 1 / len(each)) for place in each] for each in _windows(size, count)]


def _transposed(table: Table, size: int) -> Table:
    made: Table = [[] for _ in range(size)]
    for output, terms in enumerate(table):
        for place, weight in terms:
            made[place].append((output, weight))
    return made


def _apply(value: Value, dim: int, table: Table) -> Value:
    """Replace a dimension's elements by the weighted sums of a table."""
    most = max((len(terms) for terms in table), default=0)
    index = torch.zeros(len(table), most, dtype=torch.int64)
    weights = torch.zeros(len(table), most, dtype=torch.float64)
    used = torch.zeros(len(table), most, dtype=torch.bool)
    for row, terms in enumerate(table):
        for column, (place, weight) in enumerate(terms):
            index[row, column], weights[row, column] = place, weight
            used[row, column] = True
    picked = _take(value, dim, index)
    dims = [dim, dim + 1]
    scaled = picked * e.broadcast_in_dim(e.literal(weights.to(value.dtype)), picked.shape, dims)
    if not used.all():  # a weight of zero would let infinities through
        scaled = e.select(e.broadcast_in_dim(e.literal(used), picked.shape, dims), scaled, 0)
    return e.reduce_sum(scaled, [dim + 1])


def _take(value: Value, dim: int, index: torch.Tensor) -> Value:
    """Split a dimension in two: the elements at each place of a matrix of indices."""
    whole = torch.arange(value.shape[dim])
    if torch.equal(index.flatten(), whole):
        return e.reshape(value, (*value.shape[:dim], *index.shape, *value.shape[dim + 1 :]))
    return e.take(value, dim, e.literal(index))


def _resample(call: Call, value: Value, tables: Sequence[Table]) -> Value:
    """Apply one table to each trailing dimension, in float32 for the half types."""
    if not value.is_float:
        raise NotImplementedError(f"{call.target} of {value.dtype}")
    value = widened(value)
    for place, table in enumerate(tables):
        value = _apply(value, value.rank - len(tables) + place, table)
    return value.to(call.dtype)


@lowers("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive_average(call: Call, value: Value, output_size: Sequence[int]) -> Value:
    rank = len(output_size)
    sizes = zip(value.shape[-rank:], call.shape[-rank:], strict=True)
    return _resample(call, value, [_mean_table(size, count) for size, count in sizes])


@lowers("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def _adaptive_average_backward(call: Call, gradient: Value, value: Value) -> Value:
    rank = 3 if "3d" in call.target.name() else 2
    sizes = zip(value.shape[-rank:], gradient.shape[-rank:], strict=True)
    tables = [_transposed(_mean_table(size, count), size) for size, count in sizes]
    return _resample(call, gradient, tables)


@lowers("adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max(call: Call, value: Value, output_size: Sequence[int]) -> tuple[Value, Value]:
    """Take each window's largest element; short windows are filled with their last element."""
    rank = len(output_size)
    pair: Pair = (value, places(value.shape, rank))
    for dim in reversed(range(value.rank - rank, value.rank)):
        windows = _windows(value.shape[dim], call.shape[dim])
        most = max((len(each) for each in windows), default=0)
        index = [[each[min(i, len(each) - 1)] for i in range(most)] for each in windows]
        matrix = torch.tensor(index, dtype=torch.int64).reshape(len(windows), most)
        largest, place = fold((_take(pair[0], dim, matrix), _take(pair[1], dim, matrix)), dim + 1)
        shape = [*value.shape[:dim], *call.shape[dim - value.rank :]]
        pair = e.reshape(largest, shape), e.reshape(place, shape)
    return pair[0], pair[1].to(torch.int64)


@lowers("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def _adaptive_max_backward(call: Call, gradient: Value, value: Value, indices: Value) -> Value:
    return add_at(gradient, indices, call.shape, 3 if "3d" in call.target.name() else 2)


def _triangle(x: float) -> float:
    return max(1 - abs(x), 0.0)


def _cubic(x: float) -> float:
    x, a = abs(x), -0.5
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


def _smoothing_table(
    size: int,
    count: int,
    aligned: bool,
    scale: float | None,
    half_width: int,
    shape: Callable[[float], float],
) -> Table:
    """Weigh input elements by a filter that is as wide as an output element, if that is wider."""
    if aligned:
        step = (size - 1) / (count - 1) if count > 1 else 0.0
    else:
        step = 1 / scale if scale else size / count
    wide = max(step, 1.0)
    table: Table = []
    for output in range(count):
        center = step * (output + 0.5)
        low = max(math.floor(center - half_width * wide + 0.5), 0)
        high = min(math.floor(center + half_width * wide + 0.5), size)
        weights = [shape((place - center + 0.5) / wide) for place in range(low, high)]
        total = sum(weights) or 1.0
        table.append([(low + i, weight / total) for i, weight in enumerate(weights)])
    return table


_FILTERS: dict[str, tuple[int, Callable[[float], float]]] = {
    "bilinear": (1, _triangle),
    "bicubic": (2, _cubic),
}


def _smoothing_tables(
    call: Call, sizes: Sequence[int], counts: Sequence[int], aligned: bool, *scales: float | None
) -> list[Table]:
    name = call.target.name().split("_upsample_")[1].split("2d")[0]
    return [
        _smoothing_table(size, count, aligned, scale, *_FILTERS[name])
        for size, count, scale in zip(sizes, counts, scales, strict=True)
    ]


@lowers("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def _upsample(
    call: Call,
    value: Value,
    output_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Value:
    """Interpolate; like the CPU's forward pass alone, leave a dimension that keeps its size."""
    sizes = value.shape[2:]
    tables = _smoothing_tables(call, sizes, output_size, align_corners, scales_h, scales_w)
    kept: list[Table] = [
        [[(place, 1.0)] for place in range(size)] if size == len(table) else table
        for size, table in zip(sizes, tables, strict=True)
    ]
    return _resample(call, value, kept)


@lowers("_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa_backward")
def _upsample_backward(
    call: Call,
    gradient: Value,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Value:
    sizes = input_size[2:]
    tables = _smoothing_tables(call, sizes, output_size, align_corners, scales_h, scales_w)
    transposed = [_transposed(table, size) for table, size in zip(tables, sizes, strict=True)]
    return _resample(call, gradient, transposed)
