"""Taking parts of a tensor, putting parts into one, and joining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.registry import Call, lowers


def _bounds(size: int, start: int | None, stop: int | None) -> tuple[int, int]:
    """Bring a slice's bounds into the size, as Python does."""
    first, last, _ = slice(start, stop).indices(size)
    return first, max(first, last)


@lowers("slice.Tensor")
def _slice(
    _call: Call,
    x: Value,
    dim: int = 0,
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
) -> Value:
    dim %= x.rank
    return e.slice_dim(x, dim, *_bounds(x.shape[dim], start, stop), step)


@lowers("narrow_copy")
def _narrow_copy(_call: Call, x: Value, dim: int, start: int, length: int) -> Value:
    dim %= x.rank
    start = start + x.shape[dim] if start < 0 else start
    return e.slice_dim(x, dim, start, start + length)


@lowers("select.int")
def _select(call: Call, x: Value, dim: int, index: int) -> Value:
    dim %= x.rank
    index %= x.shape[dim]
    return e.reshape(e.slice_dim(x, dim, index, index + 1), call.shape)


@lowers(
    *"split.Tensor split_with_sizes split_with_sizes_copy".split(),
    *"unsafe_split.Tensor unsafe_split_with_sizes".split(),
)
def _split(call: Call, x: Value, _sizes: Any, dim: int = 0) -> tuple[Value, ...]:
    pieces, start = [], 0
    dim %= x.rank
    for fake in call.results:
        stop = start + int(fake.shape[dim])
        pieces.append(e.slice_dim(x, dim, start, stop))
        start = stop
    return tuple(pieces)


@lowers("unbind.int", "unbind_copy.int")
def _unbind(call: Call, x: Value, dim: int = 0) -> tuple[Value, ...]:
    dim %= x.rank
    rest = (*x.shape[:dim], *x.shape[dim + 1 :])
    return tuple(
        e.reshape(e.slice_dim(x, dim, index, index + 1), rest) for index in range(x.shape[dim])
    )


@lowers("cat")
def _cat(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Join; a one-dimensional tensor without elements joins with any shape, and adds nothing."""
    parts = [each.to(call.dtype) for each in tensors if each.shape != (0,)]
    if not parts:
        return e.full(call.shape, 0, call.dtype)
    return e.concatenate(parts, dim % len(call.shape))


@lowers("stack")
def _stack(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    dim %= len(call.shape)
    return e.concatenate([e.expand_dims(each.to(call.dtype), [dim]) for each in tensors], dim)


def _put(x: Value, new: Value, dim: int, start: int, step: int) -> Value:
    """Replace every `step`th slice of a dimension from `start` on; `new` has that many there."""
    count = new.shape[dim]
    if not new.numel:
        return x
    if count == x.shape[dim]:
        return new
    if step == 1:
        return e.update_slice(x, new, [start if each == dim else 0 for each in range(x.rank)])
    spread = _spread(new, x.shape[dim], dim, start, step)
    place = e.iota(x.shape, dim) - start
    hit = (place >= 0) & (place < count * step) & e.remainder(place, step).eq(0)
    return e.select(hit, spread, x)


def _spread(new: Value, size: int, dim: int, start: int, step: int) -> Value:
    """Spread slices over a longer dimension of zeros, the first at `start`."""
    low, high, between = [0] * new.rank, [0] * new.rank, [0] * new.rank
    if not new.shape[dim]:
        return e.full(
            [size if each == dim else s for each, s in enumerate(new.shape)], 0, new.dtype
        )
    low[dim], between[dim] = start, step - 1
    high[dim] = size - start - (new.shape[dim] - 1) * step - 1
    return e.pad(new, 0, low, high, between)


@lowers("slice_scatter")
def _slice_scatter(
    _call: Call,
    x: Value,
    new: Value,
    dim: int = 0,
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
) -> Value:
    dim %= x.rank
    first, last = _bounds(x.shape[dim], start, stop)
    count = -(-(last - first) // step)
    part = [count if each == dim else size for each, size in enumerate(x.shape)]
    return _put(x, e.broadcast_to(new.to(x.dtype), part), dim, first, step)


@lowers("select_scatter")
def _select_scatter(_call: Call, x: Value, new: Value, dim: int, index: int) -> Value:
    dim %= x.rank
    part = e.expand_dims(new.to(x.dtype), [dim])
    return _put(x, part, dim, index % x.shape[dim], 1)


@lowers("slice_backward")
def _slice_backward(
    call: Call, grad: Value, _sizes: Sequence[int], dim: int, start: int, stop: int, step: int
) -> Value:
    dim %= grad.rank
    size = call.shape[dim]
    return _spread(grad, size, dim, _bounds(size, start, stop)[0], step)


@lowers("select_backward")
def _select_backward(call: Call, grad: Value, _sizes: Sequence[int], dim: int, index: int) -> Value:
    dim %= len(call.shape)
    size = call.shape[dim]
    return _spread(e.expand_dims(grad, [dim]), size, dim, index % size, 1)
