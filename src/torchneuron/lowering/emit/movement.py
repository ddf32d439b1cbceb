"""Moving elements: reshape, transpose, slice, pad, join, gather, scatter, sort."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jaxlib.mlir.ir as ir
import torch
from jaxlib.mlir.dialects import stablehlo as hlo

from torchneuron.lowering.emit.types import tensor_type
from torchneuron.lowering.emit.value import Scalar, Value, broadcast_to, full, wrap


def _i64(numbers: Sequence[int]) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get(list(numbers))


def reshape(value: Value, shape: Sequence[int]) -> Value:
    """Give the elements, in row-major order, another shape; one size may be -1."""
    shape = list(shape)
    if -1 in shape:
        known = 1
        for size in shape:
            known *= size if size != -1 else 1
        shape[shape.index(-1)] = value.numel // known if known else 0
    if value.shape == tuple(shape):
        return value
    made = hlo.reshape(tensor_type(tuple(shape), value.dtype), value.ir)
    return Value(made, tuple(shape), value.dtype)


def transpose(value: Value, order: Sequence[int]) -> Value:
    """Reorder the dimensions: result dimension `i` is `order[i]` of the operand."""
    order = [each % value.rank for each in order] if value.rank else []
    if order == list(range(value.rank)):
        return value
    return wrap(hlo.transpose(value.ir, _i64(order)))


def broadcast_in_dim(value: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
    """Repeat the operand; its dimension `i` becomes dimension `dims[i]` of the result."""
    made = hlo.broadcast_in_dim(tensor_type(tuple(shape), value.dtype), value.ir, _i64(dims))
    return Value(made, tuple(shape), value.dtype)


def slice_dim(value: Value, dim: int, start: int, stop: int, step: int = 1) -> Value:
    """Take `start:stop:step` of one dimension; the bounds are within the size."""
    starts, stops, steps = [0] * value.rank, list(value.shape), [1] * value.rank
    starts[dim], stops[dim], steps[dim] = start, stop, step
    return slice_all(value, starts, stops, steps)


def slice_all(
    value: Value, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]
) -> Value:
    """Take a strided block."""
    if list(starts) == [0] * value.rank and tuple(stops) == value.shape and set(steps) <= {1}:
        return value
    return wrap(hlo.slice(value.ir, _i64(starts), _i64(stops), _i64(steps)))


def pad(
    value: Value,
    fill: Scalar | Value,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int] | None = None,
) -> Value:
    """Add elements around and between; a negative number removes some from that side."""
    filler = fill if isinstance(fill, Value) else full((), fill, value.dtype)
    between = interior if interior is not None else [0] * value.rank
    if not any((*low, *high, *between)):
        return value
    return wrap(hlo.pad(value.ir, filler.ir, _i64(low), _i64(high), _i64(between)))


def concatenate(values: Sequence[Value], dim: int) -> Value:
    """Join along a dimension."""
    if len(values) == 1:
        return values[0]
    return wrap(hlo.concatenate([each.ir for each in values], dim))


def reverse(value: Value, dims: Sequence[int]) -> Value:
    """Turn dimensions around."""
    return wrap(hlo.reverse(value.ir, _i64(dims))) if dims else value


def iota(shape: Sequence[int], dim: int, dtype: torch.dtype = torch.int64) -> Value:
    """Write each element's index along a dimension."""
    if dtype == torch.bool:
        return iota(shape, dim, torch.int32).to(torch.bool)
    made = hlo.iota(tensor_type(tuple(shape), dtype), dim)
    return Value(made, tuple(shape), dtype)


def bitcast(value: Value, shape: Sequence[int], dtype: torch.dtype) -> Value:
    """Read the same bits as another dtype; the last dimension splits or joins with the width."""
    made = hlo.bitcast_convert(tensor_type(tuple(shape), dtype), value.ir)
    return Value(made, tuple(shape), dtype)


def update_slice(value: Value, part: Value, starts: Sequence[int]) -> Value:
    """Replace the block of `part`'s shape that begins at `starts`; it lies within the value."""
    places = [full((), start, torch.int64).ir for start in starts]
    return Value(hlo.dynamic_update_slice(value.ir, part.ir, places), value.shape, value.dtype)


def take(value: Value, dim: int, index: Value) -> Value:
    """Select whole slices along a dimension; `index` (any shape, in range) replaces it."""
    rank = index.rank
    offsets = [*range(dim), *range(dim + rank, value.rank - 1 + rank)]
    return gather(
        value,
        reshape(index, (*index.shape, 1)),
        offset_dims=offsets,
        collapsed=[dim],
        start_map=[dim],
        sizes=[1 if each == dim else size for each, size in enumerate(value.shape)],
    )


def gather(
    value: Value,
    index: Value,
    *,
    offset_dims: Sequence[int],
    collapsed: Sequence[int],
    start_map: Sequence[int],
    sizes: Sequence[int],
) -> Value:
    """Write `stablehlo.gather`; the index vectors are the last dimension of `index`."""
    numbers = hlo.GatherDimensionNumbers.get(
        offset_dims=list(offset_dims),
        collapsed_slice_dims=list(collapsed),
        operand_batching_dims=[],
        start_indices_batching_dims=[],
        start_index_map=list(start_map),
        index_vector_dim=index.rank - 1,
    )
    return wrap(hlo.gather(value.ir, index.ir, numbers, _i64(sizes), indices_are_sorted=False))


def scatter(
    value: Value,
    index: Value,
    updates: Value,
    combine: Callable[[Value, Value], Value],
    *,
    window_dims: Sequence[int],
    inserted: Sequence[int],
    scatter_dims: Sequence[int],
    unique: bool = False,
) -> Value:
    """Write `stablehlo.scatter`: `combine(old, update)` at each index, in the updates' order."""
    numbers = hlo.ScatterDimensionNumbers.get(
        update_window_dims=list(window_dims),
        inserted_window_dims=list(inserted),
        input_batching_dims=[],
        scatter_indices_batching_dims=[],
        scattered_dims_to_operand_dims=list(scatter_dims),
        index_vector_dim=index.rank - 1,
    )
    op = hlo.ScatterOp(
        [value.ir.type],
        [value.ir],
        index.ir,
        [updates.ir],
        numbers,
        indices_are_sorted=ir.BoolAttr.get(False),
        unique_indices=ir.BoolAttr.get(unique),
    )
    fill_block(
        op.update_computation, [value.dtype, value.dtype], lambda old, new: [combine(old, new)]
    )
    return Value(op.result, value.shape, value.dtype)


def sort(
    values: Sequence[Value], dim: int, less: Callable[..., Value], *, stable: bool = True
) -> list[Value]:
    """Sort all values by `less(a0, b0, a1, b1, ...)`, which sees one element of each."""
    op = hlo.SortOp(
        [each.ir.type for each in values],
        [each.ir for each in values],
        dimension=dim,
        is_stable=stable,
    )
    dtypes = [each.dtype for each in values for _ in range(2)]
    fill_block(op.comparator, dtypes, lambda *args: [less(*args)])
    return [
        Value(made, each.shape, each.dtype) for made, each in zip(op.results, values, strict=True)
    ]


def fill_block(
    region: ir.Region, dtypes: Sequence[torch.dtype], body: Callable[..., Sequence[Value]]
) -> None:
    """Write a region of scalars: `body` gets one rank-0 value per dtype."""
    kinds = [tensor_type((), dtype) for dtype in dtypes]
    block = region.blocks.append(*kinds)
    with ir.InsertionPoint(block):
        arguments = [
            Value(made, (), dtype) for made, dtype in zip(block.arguments, dtypes, strict=True)
        ]
        hlo.return_([each.ir for each in body(*arguments)])


def expand_dims(value: Value, dims: Sequence[int]) -> Value:
    """Insert dimensions of size one at these places of the result."""
    shape = list(value.shape)
    for dim in sorted(dims):
        shape.insert(dim, 1)
    return reshape(value, shape)


def repeat_dim(value: Value, dim: int, size: int) -> Value:
    """Insert a dimension at `dim` and repeat along it."""
    shape = (*value.shape[:dim], size, *value.shape[dim:])
    return broadcast_to(expand_dims(value, [dim]), shape)
