"""Reading at indices: advanced indexing, `gather`, `take`, embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.registry import Call, lowers


@dataclass(frozen=True, slots=True)
class Places:
    """Hold where a gather reads, or a scatter writes, in a tensor.

    Attributes:
        vectors: The indices; the last dimension has one for each of `dims`.
        dims: Dimensions of the tensor that are indexed.
        whole: Dimensions of the gathered tensor (or of the updates) that run along the tensor's
            other dimensions; the rest are those of `vectors`.
    """

    vectors: Value
    dims: tuple[int, ...]
    whole: tuple[int, ...]

    def read(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Gather a tensor of this shape."""
        if 0 in shape:  # XLA takes no slice of size one from nothing
            return e.full(shape, 0, value.dtype)
        return e.gather(
            value,
            self.vectors,
            offset_dims=self.whole,
            collapsed=self.dims,
            start_map=self.dims,
            sizes=[1 if dim in self.dims else size for dim, size in enumerate(value.shape)],
        )

    def write(
        self, value: Value, updates: Value, combine: Callable[[Value, Value], Value]
    ) -> Value:
        """Replace elements by `combine(old, update)`, in the updates' order."""
        if not updates.numel or not value.numel:
            return value
        return e.scatter(
            value,
            self.vectors,
            updates,
            combine,
            window_dims=self.whole,
            inserted=self.dims,
            scatter_dims=self.dims,
        )


def is_mask(index: Value | None) -> TypeGuard[Value]:
    """Return whether an index selects where it is true; uint8 is an old spelling of bool."""
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def nonnegative(index: Value, size: int) -> Value:
    """Count negative indices from the end."""
    return e.select(index < 0, index + size, index)


def index_dtype(size: int) -> torch.dtype:
    """Return the narrower of int32 and int64 that holds indices into a size, and the size."""
    return torch.int32 if size <= torch.iinfo(torch.int32).max else torch.int64


def _vectors(parts: Sequence[Value], sizes: Sequence[int]) -> Value:
    dtype = index_dtype(max(sizes, default=0))
    columns = [e.reshape(each.to(dtype), (*each.shape, 1)) for each in parts]
    return e.concatenate(columns, columns[0].rank - 1)


def points(shape: Sequence[int], dim: int, index: Value) -> Places:
    """Find the elements that `gather` and `scatter` mean: `index` along `dim`, else in place."""
    parts = [
        nonnegative(index, size) if each == dim else e.iota(index.shape, each, torch.int32)
        for each, size in enumerate(shape)
    ]
    return Places(_vectors(parts, shape), tuple(range(len(shape))), ())


def slices(shape: Sequence[int], dim: int, index: Value) -> Places:
    """Find whole slices across a dimension, for an index of one dimension."""
    vectors = _vectors([nonnegative(index, shape[dim])], [shape[dim]])
    return Places(vectors, (dim,), tuple(each for each in range(len(shape)) if each != dim))


def advanced(
    shape: Sequence[int], indices: Sequence[Value | None]
) -> tuple[Places, tuple[int, ...]]:
    """Find what advanced indexing means, and the shape of what it selects.

    Indices broadcast together. Their dimensions stand where the first of them was, or in front if
    a `None` separates them.

    Raises:
        NotImplementedError: There is a mask, and how much it selects depends on data.
    """
    used = {dim: each for dim, each in enumerate(indices) if each is not None}
    for each in used.values():
        if is_mask(each):
            raise NotImplementedError(
                f"indexing by a {each.dtype} mask of shape {list(each.shape)}: "
                "the size of the result depends on data"
            )
    dims = tuple(used)
    common = tuple(torch.broadcast_shapes(*(each.shape for each in used.values())))
    first = dims[0] if dims == tuple(range(dims[0], dims[-1] + 1)) else 0
    others = [size for dim, size in enumerate(shape) if dim not in used]
    parts = [e.broadcast_to(nonnegative(each, shape[dim]), common) for dim, each in used.items()]
    rank = len(others) + len(common)
    places = Places(
        _vectors(parts, [shape[dim] for dim in dims]),
        dims,
        (*range(first), *range(first + len(common), rank)),
    )
    return places, (*others[:first], *common, *others[first:])


def at_least_1d(value: Value) -> Value:
    """View a tensor without dimensions as one of one element, as PyTorch's index operators do."""
    return value if value.rank else e.reshape(value, (1,))


@lowers("index.Tensor", "_unsafe_index.Tensor")
def _index(call: Call, value: Value, indices: Sequence[Value | None]) -> Value:
    if all(each is None for each in indices):
        return value
    places, shape = advanced(value.shape, indices)
    return places.read(value, shape)


@lowers("index_select")
def _index_select(call: Call, value: Value, dim: int, index: Value) -> Value:
    operand, index = at_least_1d(value), at_least_1d(index)
    if 0 in call.shape:
        return e.full(call.shape, 0, call.dtype)
    made = e.take(operand, dim % operand.rank, index)
    return e.reshape(made, call.shape)


@lowers("gather")
def _gather(
    call: Call, value: Value, dim: int, index: Value, *, sparse_grad: bool = False
) -> Value:
    operand, index = at_least_1d(value), at_least_1d(index)
    made = points(operand.shape, dim % operand.rank, index).read(operand, index.shape)
    return e.reshape(made, call.shape)


@lowers("take")
def _take(call: Call, value: Value, index: Value) -> Value:
    flat = e.reshape(value, (value.numel,))
    if 0 in call.shape:
        return e.full(call.shape, 0, call.dtype)
    return e.take(flat, 0, nonnegative(index, value.numel))


@lowers("embedding")
def _embedding(
    call: Call,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    if 0 in call.shape:
        return e.full(call.shape, 0, call.dtype)
    return e.take(weight, 0, indices)


@lowers("embedding_dense_backward")
def _embedding_dense_backward(
    call: Call,
    gradient: Value,
    indices: Value,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Value:
    """Add up the rows of each index; those of `padding_idx` go nowhere."""
    width = gradient.shape[-1]
    compute = torch.float32 if gradient.dtype.itemsize == 2 else gradient.dtype
    index = e.reshape(indices, (indices.numel,))
    rows = e.reshape(gradient.to(compute), (indices.numel, width))
    if padding_idx >= 0:  # XLA drops an update outside the tensor
        index = e.select(index.eq(padding_idx), num_weights, index)
    places = Places(_vectors([index], [num_weights]), (0,), (1,))
    if scale_grad_by_freq and index.numel and num_weights:
        single = Places(places.vectors, (0,), ())
        ones = e.full(index.shape, 1, compute)
        counts = single.write(e.full((num_weights,), 0, compute), ones, lambda a, b: a + b)
        rows = rows / e.reshape(single.read(counts, index.shape), (index.numel, 1))
    zeros = e.full((num_weights, width), 0, compute)
    return places.write(zeros, rows, lambda a, b: a + b).to(call.dtype)
