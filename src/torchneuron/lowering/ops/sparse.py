"""Products with a sparse matrix given by its members, with sizes that do not depend on the data.

Whole rows are gathered and added up by row. Entries that are only room belong to the row behind the
last, which is cut off.
"""

from __future__ import annotations

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.ops.index import slices
from torchneuron.lowering.ops.reduce import widened
from torchneuron.lowering.ops.scan import scan
from torchneuron.lowering.registry import Call, lowers


def _add(old: Value, new: Value) -> Value:
    return old + new


def _rows(compressed: Value, room: int) -> Value:
    """Return the row of each entry: as many as end before it or with it."""
    rows = compressed.shape[0] - 1
    # Chips accumulate no integers; float32 is exact to this many.
    dtype = torch.float32 if max(rows, room) <= 1 << 24 else torch.int64
    ends = slices((room + 1,), 0, e.slice_dim(compressed, 0, 1, rows + 1))
    marks = ends.write(e.full((room + 1,), 0, dtype), e.full((rows,), 1, dtype), _add)
    return e.slice_dim(scan(marks, 0, 0, _add), 0, 0, room).to(torch.int64)


def _taken(value: Value, rows: Value) -> Value:
    """Gather rows of (M, N); those behind the last are zeros."""
    return e.take(e.pad(value, 0, [0, 0], [1, 0]), 0, rows)


def _column(values: Value, dtype: torch.dtype) -> Value:
    return e.reshape(values.to(dtype), (values.numel, 1))


def _summed(products: Value, rows: Value, num_rows: int) -> Value:
    """Add up products (room, N) by row; there may be one row too many."""
    shape = (num_rows + 1, products.shape[1])
    made = slices(shape, 0, rows).write(e.full(shape, 0, products.dtype), products, _add)
    return e.slice_dim(made, 0, 0, num_rows)


@lowers("torchneuron.csr_mm")
def _csr_mm(call: Call, compressed: Value, plain: Value, values: Value, dense: Value) -> Value:
    num_rows, _ = call.shape
    if not values.numel or not dense.numel:
        return e.full(call.shape, 0, call.dtype)
    wide = widened(dense)
    products = _column(values, wide.dtype) * e.take(wide, 0, plain)
    return _summed(products, _rows(compressed, values.numel), num_rows).to(call.dtype)


@lowers("torchneuron.csr_mm_transposed")
def _csr_mm_transposed(
    call: Call, compressed: Value, plain: Value, values: Value, dense: Value, columns: int
) -> Value:
    if not values.numel or not dense.numel:
        return e.full(call.shape, 0, call.dtype)
    wide = widened(dense)
    taken = _taken(wide, _rows(compressed, values.numel))
    return _summed(_column(values, wide.dtype) * taken, plain, columns).to(call.dtype)


@lowers("torchneuron.csr_sampled")
def _csr_sampled(call: Call, compressed: Value, plain: Value, left: Value, right: Value) -> Value:
    if not plain.numel or not left.numel or not right.numel:
        return e.full(call.shape, 0, call.dtype)
    taken = _taken(widened(left), _rows(compressed, plain.numel))
    products = taken * e.take(widened(right), 0, plain)
    return e.reduce_sum(products, [1]).to(call.dtype)
