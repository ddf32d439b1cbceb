"""Sorting and what is read off a sorted dimension.

Not-a-number is the greatest, and sorts are stable. XLA:CPU sorts single integers several times
faster than pairs, so elements of up to 32 bits are packed with their index into one int64. Chips
take no sort: for them `sort_network` writes comparisons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering import sort_network
from torchneuron.lowering.emit import Scalar, Value
from torchneuron.lowering.ops.reduce import extreme_and_index
from torchneuron.lowering.ops.scan import scan
from torchneuron.lowering.registry import Call, lowers


@dataclass(frozen=True, slots=True)
class Rows:
    """Hold a tensor as a matrix whose rows run along one dimension, and the way back."""

    matrix: Value
    order: list[int]
    outer: tuple[int, ...]

    @staticmethod
    def of(value: Value, dim: int) -> Rows:
        """Lay a dimension out as rows; a number is one row of one element."""
        if not value.rank:
            return Rows(e.reshape(value, (1, 1)), [0], ())
        order = [each for each in range(value.rank) if each != dim % value.rank]
        order.append(dim % value.rank)
        moved = e.transpose(value, order)
        matrix = e.reshape(moved, (math.prod(moved.shape[:-1]), moved.shape[-1]))
        return Rows(matrix, order, moved.shape[:-1])

    @property
    def length(self) -> int:
        """Return the length of a row."""
        return self.matrix.shape[1]

    def back(self, matrix: Value, shape: tuple[int, ...]) -> Value:
        """Give a matrix with as many rows the original order of dimensions."""
        if len(shape) != len(self.order):  # a number, or the dimension is reduced away
            return e.reshape(matrix, shape)
        moved = e.reshape(matrix, (*self.outer, matrix.shape[1]))
        return e.transpose(moved, [self.order.index(each) for each in range(len(shape))])

    def pick(self, index: Value) -> Value:
        """Take from each row the elements at `index`, a matrix with as many rows."""
        if not index.numel:
            return e.full(index.shape, 0, self.matrix.dtype)
        flat = e.reshape(self.matrix, (-1,))
        return e.take(flat, 0, e.iota(index.shape, 0) * self.length + index)


def _key(value: Value) -> Value:
    """Map elements of up to 32 bits to int32 in the same order, both zeros to one number."""
    if not value.is_float:
        return value.to(torch.int32)
    value = value.to(torch.float32)
    bits = e.bitcast(e.select(value.eq(0), 0.0, value), value.shape, torch.int32)
    ordered = e.select(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return e.select(e.isnan(value), 0x7FFFFFFF, ordered)


def _sorted_index(rows: Value, descending: bool, count: int | None = None) -> Value:
    """Return where in its row each element of the sorted row, or of its beginning, is."""
    count = rows.shape[1] if count is None else count
    if not rows.numel or not count:
        return e.full((rows.shape[0], count), 0, torch.int64)
    order = _host_order if e.is_for_host() else sort_network.order
    return e.slice_dim(order(rows, descending, count), 1, 0, count)


def _host_order(rows: Value, descending: bool, _count: int) -> Value:
    places = e.iota(rows.shape, 1)
    if rows.dtype.itemsize <= 4 and rows.dtype != torch.uint32:
        key = ~_key(rows) if descending else _key(rows)
        high = e.shift_left(key.to(torch.int64), e.full_like(places, 32))
        (packed,) = e.sort([high | places], 1, lambda a, b: a < b, stable=False)
        return packed & 0xFFFFFFFF

    def less(a: Value, b: Value, i: Value, j: Value) -> Value:
        if descending:
            a, b = b, a
        return (a < b) | (e.isnan(b) & ~e.isnan(a)) if rows.is_float else a < b

    return e.sort([rows, places], 1, less)[1]


def _results(call: Call, rows: Rows, index: Value) -> tuple[Value, Value]:
    shapes = [tuple(int(size) for size in each.shape) for each in call.results]
    return rows.back(rows.pick(index), shapes[0]), rows.back(index, shapes[1])


@lowers("sort")
def _sort(call: Call, value: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    rows = Rows.of(value, dim)
    return _results(call, rows, _sorted_index(rows.matrix, descending))


@lowers("sort.stable")
def _sort_stable(
    call: Call, value: Value, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    return _sort(call, value, dim, descending)


@lowers("topk")
def _topk(
    call: Call, value: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    rows = Rows.of(value, dim)
    if k == 1 and largest:  # not the smallest: there not-a-number comes last, not first
        _, index = extreme_and_index(rows.matrix, 1, largest=True, keepdim=True)
    else:
        index = _sorted_index(rows.matrix, largest, k)
    return _results(call, rows, index)


@lowers("kthvalue")
def _kthvalue(
    call: Call, value: Value, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[Value, Value]:
    rows = Rows.of(value, dim)
    index = _sorted_index(rows.matrix, descending=False, count=k)
    return _results(call, rows, e.slice_dim(index, 1, k - 1, k))


# -- medians and mode


def _median_index(rows: Value, ignore_nan: bool) -> Value:
    """Find the lower median of each row: the first not-a-number, or that of the others."""
    length = rows.shape[1]
    index = _sorted_index(rows, descending=False)
    if not rows.is_float:
        return e.slice_dim(index, 1, (length - 1) // 2, (length - 1) // 2 + 1)
    nans = e.reduce_sum(e.isnan(rows).to(torch.int64), [1], keepdim=True)
    if ignore_nan:
        # A shift, since chips may divide integers as floats.
        place = e.shift_right_logical(e.maximum(length - 1 - nans, 0), 1)
    else:
        place = e.select(nans > 0, length - nans, (length - 1) // 2)
    return Rows.of(index, 1).pick(place)


def _median_rules(name: str, ignore_nan: bool) -> None:
    def along(call: Call, value: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        rows = Rows.of(value, dim)
        return _results(call, rows, _median_index(rows.matrix, ignore_nan))

    def of_all(call: Call, value: Value) -> Value:
        if not value.numel:  # for integers, what the CPU makes of not-a-number
            return e.literal(torch.full((), math.nan).to(value.dtype))
        rows = Rows.of(e.reshape(value, (-1,)), 0)
        return e.reshape(rows.pick(_median_index(rows.matrix, ignore_nan)), ())

    lowers(f"{name}.dim")(along)
    lowers(name)(of_all)


_median_rules("median", ignore_nan=False)
_median_rules("nanmedian", ignore_nan=True)


@lowers("mode")
def _mode(call: Call, value: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """Find the most frequent element, of several the smallest, and where it is last."""
    rows = Rows.of(value, dim)
    index = _sorted_index(rows.matrix, descending=False)
    ordered = rows.pick(index)
    places = e.iota(index.shape, 1)
    previous = e.slice_dim(ordered, 1, 0, rows.length - 1)
    changes = e.slice_dim(ordered, 1, 1, rows.length).ne(previous)
    begins = e.pad(changes, False, [0, 1], [0, 0])
    run_start = scan(e.select(begins, places, 0), 1, 0, e.maximum)
    _, place = extreme_and_index(places - run_start, 1, largest=True, keepdim=True)
    return _results(call, rows, Rows.of(index, 1).pick(place))


# -- search in sorted boundaries


def _search(
    call: Call, boundaries: Value, value: Value, right: bool, sorter: Value | None
) -> Value:
    """Count for each number the boundaries before it by binary search, in log2(length) steps."""
    rows = Rows.of(boundaries, -1)
    length = rows.length
    queries = e.reshape(value, (rows.matrix.shape[0], -1) if boundaries.rank > 1 else (1, -1))
    found = e.full(queries.shape, 0, torch.int64)
    order = None if sorter is None else Rows.of(sorter.to(torch.int64), -1)
    for step in (1 << bit for bit in reversed(range(length.bit_length()))):
        place = e.minimum(found + (step - 1), length - 1)
        seen = rows.pick(place if order is None else order.pick(place))
        # Written as the CPU writes it, for not-a-number on either side.
        before = ~(seen > queries) if right else ~(seen >= queries)
        found = e.select(before & (found + step <= length), found + step, found)
    return e.reshape(found, call.shape).to(call.dtype)


def _common(boundaries: Value, value: Value | Scalar) -> tuple[Value, Value]:
    example = torch.empty((), dtype=boundaries.dtype)
    if isinstance(value, Value):
        dtype = torch.promote_types(boundaries.dtype, value.dtype)
        return boundaries.to(dtype), value.to(dtype)
    dtype = torch.result_type(example, value)
    return boundaries.to(dtype), e.full((), value, dtype)


@lowers("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(
    call: Call,
    boundaries: Value,
    value: Value | Scalar,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    return _search(call, *_common(boundaries, value), right or side == "right", sorter)


@lowers("bucketize.Tensor", "bucketize.Scalar")
def _bucketize(
    call: Call,
    value: Value | Scalar,
    boundaries: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
) -> Value:
    return _search(call, *_common(boundaries, value), right, None)


@lowers("histc")
def _histc(
    call: Call,
    value: Value,
    bins: int = 100,
    min: Scalar = 0,
    max: Scalar = 0,
) -> Value:
    """Count in bins of equal width; without a range, in that of the elements."""
    value = e.reshape(value, (-1,))
    low, high = (e.full((), each, value.dtype) for each in (min, max))
    if min == max and value.numel:
        low, high = e.reduce_min(value, [0]), e.reduce_max(value, [0])
    flat = low.eq(high)
    low, high = e.select(flat, low - 1, low), e.select(flat, high + 1, high)
    inside = (value >= low) & (value <= high)
    if value.is_float:
        place = e.floor((value - low) / (high - low) * bins).to(torch.int64)
    else:
        place = ((value - low) * bins / (high - low)).to(torch.int64)
    place = e.minimum(e.select(inside, place, 0), bins - 1)
    return e.scatter(
        e.full((bins,), 0, value.dtype),
        e.reshape(place, (-1, 1)),
        inside.to(value.dtype),
        lambda old, new: old + new,
        window_dims=[],
        inserted=[0],
        scatter_dims=[0],
    )
