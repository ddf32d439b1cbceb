"""Pooling with windows of one size: max and average pools and their gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.ops.reduce import widened
from torchneuron.lowering.registry import Call, lowers

# Never chosen: what a window covers outside the input.
_NOWHERE = torch.iinfo(torch.int32).max


@dataclass(frozen=True, slots=True)
class _Window:
    """Hold a pool's geometry, one number per pooled (trailing) dimension."""

    sizes: tuple[int, ...]
    outputs: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @staticmethod
    def of(
        shape: Sequence[int],
        outputs: Sequence[int],
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        rank: int,
    ) -> _Window:
        """Complete the operator's lists: one number stands for all, no stride for the kernel's."""
        kernel, stride, padding, dilation = (
            tuple(each) * rank if len(each) == 1 else tuple(each)
            for each in (kernel, stride or kernel, padding, dilation)
        )
        return _Window(
            tuple(shape[-rank:]), tuple(outputs[-rank:]), kernel, stride, padding, dilation
        )

    def pads(self) -> list[tuple[int, int]]:
        """Return the elements before and after each pooled dimension.

        The padding after the input is what the number of outputs needs: with `ceil_mode` the last
        window may reach beyond the padding asked for.
        """
        high = [
            max((count - 1) * step + space * (size - 1) + 1 - whole - low, 0)
            for count, step, space, size, whole, low in zip(
                self.outputs,
                self.stride,
                self.dilation,
                self.kernel,
                self.sizes,
                self.padding,
                strict=True,
            )
        ]
        return list(zip(self.padding, high, strict=True))

    def sums(self, value: Value) -> Value:
        """Add up each window of the trailing dimensions."""
        leading = value.rank - len(self.kernel)
        return e.reduce_window(
            value,
            0,
            lambda a, b: a + b,
            sizes=[*[1] * leading, *self.kernel],
            strides=[*[1] * leading, *self.stride],
            padding=[*[(0, 0)] * leading, *self.pads()],
        )


# Values, and where in its plane each of them is.
Pair = tuple[Value, Value]


def later(pair: Pair, other: Pair) -> Pair:
    """Choose the larger element and its place; the first of equals, and the last not-a-number.

    Of an element and itself it chooses that one, so what is combined may overlap.
    """
    (largest, place), (value, new) = pair, other
    wins = e.select(value.eq(largest), new < place, value > largest)
    if value.is_float:
        wins = e.select(e.isnan(value), ~(e.isnan(largest) & (new < place)), wins)
    return e.select(wins, value, largest), e.select(wins, new, place)


def _part(pair: Pair, dim: int, start: int, stop: int, step: int = 1) -> Pair:
    value, place = (e.slice_dim(each, dim, start, stop, step) for each in pair)
    return value, place


def fold(pair: Pair, dim: int) -> Pair:
    """Reduce a dimension to its largest element, by halves: chips take no reduction of pairs."""
    while (size := pair[0].shape[dim]) > 1:
        half = (size + 1) // 2
        pair = later(_part(pair, dim, 0, half), _part(pair, dim, size - half, size))
    return pair


def places(shape: Sequence[int], rank: int) -> Value:
    """Write each element's index in its plane, the trailing `rank` dimensions."""
    count = math.prod(shape[-rank:])
    if count > _NOWHERE:
        raise NotImplementedError(f"max pool of {count} elements per plane")
    plane = e.reshape(e.iota((count,), 0, torch.int32), shape[-rank:])
    return e.broadcast_to(plane, shape)


@lowers("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(
    call: Call,
    value: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Value, Value]:
    """Take each window's largest element and its index in the plane."""
    rank = 3 if "3d" in call.target.name() else 2
    window = _Window.of(value.shape, call.shape, kernel, stride, padding, dilation, rank)
    low, high = ([0] * (value.rank - rank) + [*each] for each in zip(*window.pads(), strict=True))
    wide = widened(value)  # XLA:CPU vectorizes no half types
    pair = (
        e.pad(wide, e.lowest(wide.dtype), low, high),
        e.pad(places(value.shape, rank), _NOWHERE, low, high),
    )
    for each in reversed(range(rank)):
        pair = _slide(pair, value.rank - rank + each, window, each)
    return pair[0].to(value.dtype), pair[1].to(torch.int64)


def _slide(pair: Pair, dim: int, window: _Window, each: int) -> Pair:
    """Pool one dimension, the window's number `each`.

    Wide windows are combined of windows half as wide while that takes fewer steps: steps before the
    last ones do not profit from the stride.
    """
    kernel, stride, space = window.kernel[each], window.stride[each], window.dilation[each]
    width = 1
    while -(-kernel // width) - 1 > 2 * stride:
        stop = pair[0].shape[dim]
        apart = width * space
        pair = later(_part(pair, dim, 0, stop - apart), _part(pair, dim, apart, stop))
        width *= 2
    length = (window.outputs[each] - 1) * stride + 1
    starts = [*range(0, kernel - width, width), kernel - width]
    parts = [_part(pair, dim, at * space, at * space + length, stride) for at in starts]
    return functools.reduce(later, parts)


@lowers("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def _max_pool_backward(
    call: Call, gradient: Value, value: Value, *window: object, **more: object
) -> Value:
    """Add each gradient to the element that its window chose; `indices` is the last argument."""
    rank = 3 if "3d" in call.target.name() else 2
    (indices,) = [each for each in (*window, *more.values()) if isinstance(each, Value)]
    return add_at(gradient, indices, call.shape, rank)


def add_at(gradient: Value, indices: Value, shape: Sequence[int], rank: int) -> Value:
    """Add numbers up at their indices in the planes of a result of zeros."""
    dtype, gradient = gradient.dtype, widened(gradient)
    planes = math.prod(shape[:-rank])
    flat = (planes, math.prod(indices.shape[-rank:]))
    rows = e.iota(flat, 0, indices.dtype)
    index = [e.expand_dims(each, [2]) for each in (rows, e.reshape(indices, flat))]
    made = e.scatter(
        e.full((planes, math.prod(shape[-rank:])), 0, gradient.dtype),
        e.concatenate(index, 2),
        e.reshape(gradient, flat),
        lambda old, new: old + new,
        window_dims=[],
        inserted=[0, 1],
        scatter_dims=[0, 1],
    )
    return e.reshape(made, shape).to(dtype)


def _divisors(
    window: _Window, include_pad: bool, override: int | None, dtype: torch.dtype
) -> Value:
    """Write how many elements each window averages over, in the shape of the pooled dimensions.

    Padding counts if asked, but never what `ceil_mode` covers beyond it.
    """
    if override is not None:
        return e.full([1] * len(window.kernel), override, dtype)
    made = torch.ones([1] * len(window.kernel), dtype=torch.int64)
    for dim, count in enumerate(window.outputs):
        start = torch.arange(count) * window.stride[dim] - window.padding[dim]
        stop = start + window.kernel[dim]
        low, high = 0, window.sizes[dim]
        if include_pad:
            low, high = -window.padding[dim], high + window.padding[dim]
        sizes = stop.clamp(max=high) - start.clamp(min=low)
        if len(sizes.unique()) == 1:
            sizes = sizes[:1]
        made = made * sizes.reshape([-1 if each == dim else 1 for each in range(made.dim())])
    return e.literal(made.to(dtype))


@lowers("avg_pool2d", "avg_pool3d")
def _average_pool(
    call: Call,
    value: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    rank = 3 if "3d" in call.target.name() else 2
    window = _Window.of(value.shape, call.shape, kernel, stride, padding, [1], rank)
    value = widened(value)
    sums = window.sums(value)
    divisors = _divisors(window, count_include_pad, divisor_override, value.dtype)
    return (sums / divisors).to(call.dtype)


@lowers("avg_pool2d_backward", "avg_pool3d_backward")
def _average_pool_backward(
    call: Call,
    gradient: Value,
    value: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    """Spread each share over its window: a sum of windows over shares spaced out by the stride."""
    rank = 3 if "3d" in call.target.name() else 2
    window = _Window.of(value.shape, gradient.shape, kernel, stride, padding, [1], rank)
    gradient = widened(gradient)
    shares = gradient / _divisors(window, count_include_pad, divisor_override, gradient.dtype)
    leading = gradient.rank - rank
    low, high, between = [0] * leading, [0] * leading, [0] * leading
    for dim, size in enumerate(window.kernel):
        before = size - 1 - window.padding[dim]
        spaced = (window.outputs[dim] - 1) * window.stride[dim] + 1
        low.append(before)
        high.append(window.sizes[dim] + size - 1 - spaced - before)
        between.append(window.stride[dim] - 1)
    made = e.reduce_window(
        e.pad(shares, 0, low, high, between),
        0,
        lambda a, b: a + b,
        sizes=[*[1] * leading, *window.kernel],
        strides=[1] * gradient.rank,
        padding=[(0, 0)] * gradient.rank,
    )
    return made.to(call.dtype)
