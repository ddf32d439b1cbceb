"""Convolutions and their gradients.

Three products make all six cases, since a transposed convolution is the input gradient of a
convolution, with the roles of input and output exchanged: `_correlate` (forward), `_spread`
(gradient of the input) and `_weigh` (gradient of the weight). Half types are summed in float32 and
rounded once, after the bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.ops.reduce import widened
from torchneuron.lowering.registry import Call, lowers


@dataclass(frozen=True, slots=True)
class _Window:
    """Hold the geometry of a convolution, one number per spatial dimension, and its groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @staticmethod
    def of(
        value: Value,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> _Window:
        """Complete the operator's lists: one number stands for all dimensions."""
        spatial = value.rank - 2
        stride, padding, dilation = (
            tuple(each) * spatial if len(each) == 1 else tuple(each)
            for each in (stride, padding, dilation)
        )
        return _Window(stride, padding, dilation, groups)

    def is_point(self, inputs: Value, outputs: Sequence[int], kernel: Sequence[int]) -> bool:
        """Return whether each output is made of one input place: a product of matrices, then.

        XLA:CPU does not find that out itself, and its convolution is many times slower.
        """
        steps = {*self.stride, *kernel, self.groups}
        return steps == {1} and tuple(inputs.shape[2:]) == tuple(outputs)

    @property
    def digits(self) -> str:
        """Return the letters of the spatial dimensions."""
        return "012"[: len(self.stride)]


def _dot(left: Value, right: Value, ours: Sequence[int], theirs: Sequence[int]) -> Value:
    return e.dot_general(left, right, (ours, theirs))


def _swap(value: Value) -> Value:
    return e.transpose(value, [1, 0, *range(2, value.rank)])


def _correlate(value: Value, weight: Value, window: _Window, sizes: Sequence[int]) -> Value:
    """Convolve `value` (N, C, ...) with `weight` (O, C / groups, ...).

    `sizes` are the result's spatial sizes. There may be room for more where `value` is as large as
    the output of a transposed convolution with `output_padding`.
    """
    if window.is_point(value, sizes, weight.shape[2:]):
        return _swap(_dot(e.reshape(weight, weight.shape[:2]), value, [1], [1]))
    layout = "NC" + window.digits
    made = e.convolution(
        value,
        weight,
        strides=window.stride,
        padding=[(each, each) for each in window.padding],
        input_dilation=[1] * len(window.stride),
        weight_dilation=window.dilation,
        layouts=(layout, "OI" + window.digits, layout),
        groups=window.groups,
    )
    return e.slice_all(made, [0] * made.rank, (*made.shape[:2], *sizes), [1] * made.rank)


def _spread(value: Value, weight: Value, window: _Window, sizes: Sequence[int]) -> Value:
    """Compute the adjoint of `_correlate` for its input, whose spatial sizes are `sizes`.

    It is a convolution of `value`, spaced out by the stride, with the turned-around weight.
    """
    spatial = range(2, value.rank)
    features, kernel = weight.shape[1], weight.shape[2:]
    if window.is_point(value, sizes, kernel):
        return _swap(_dot(e.reshape(weight, weight.shape[:2]), value, [0], [1]))
    # (O, C / g, ...) to (O / g, C, ...): groups go from the outputs to the inputs.
    grouped = e.reshape(weight, (window.groups, -1, features, *kernel))
    turned = e.transpose(grouped, [1, 0, 2, *range(3, grouped.rank)])
    weight = e.reshape(turned, (turned.shape[0], window.groups * features, *kernel))
    padding = []
    for place, dim in enumerate(spatial):
        reach = window.dilation[place] * (kernel[place] - 1)
        low = reach - window.padding[place]
        spaced = (value.shape[dim] - 1) * window.stride[place] + 1
        padding.append((low, sizes[place] + reach - spaced - low))
    layout = "NC" + window.digits
    return e.convolution(
        value,
        e.reverse(weight, list(spatial)),
        strides=[1] * len(kernel),
        padding=padding,
        input_dilation=window.stride,
        weight_dilation=window.dilation,
        layouts=(layout, "IO" + window.digits, layout),
        groups=window.groups,
    )


def _weigh(value: Value, gradient: Value, window: _Window, kernel: Sequence[int]) -> Value:
    """Compute the adjoint of `_correlate` for its weight, whose spatial sizes are `kernel`.

    It is a convolution over the batch: the output's gradient, spaced out by the stride, moves over
    the input in steps of the dilation.
    """
    if window.is_point(value, gradient.shape[2:], kernel):
        places = [0, *range(2, value.rank)]
        made = _dot(gradient, value, places, places)
        return e.reshape(made, (*made.shape, *kernel))
    padding = []
    for place, size in enumerate(kernel):
        spaced = (gradient.shape[place + 2] - 1) * window.stride[place] + 1
        used = window.dilation[place] * (size - 1) + spaced
        low = window.padding[place]
        padding.append((low, used - value.shape[place + 2] - low))
    # (N, g C, ...) to (g N, C, ...): the batch takes the groups, for it is what is summed over.
    batch, features, *sizes = value.shape
    each = features // window.groups
    grouped = e.reshape(value, (batch, window.groups, each, *sizes))
    moved = e.transpose(grouped, [1, 0, *range(2, grouped.rank)])
    return e.convolution(
        e.reshape(moved, (window.groups * batch, each, *sizes)),
        gradient,
        strides=window.dilation,
        padding=padding,
        input_dilation=[1] * len(kernel),
        weight_dilation=window.stride,
        layouts=("CN" + window.digits, "IO" + window.digits, "CN" + window.digits),
        groups=window.groups,
    )


@lowers("convolution")
def _convolution(
    call: Call,
    value: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    window = _Window.of(value, stride, padding, dilation, groups)
    value, weight = widened(value), widened(weight)
    if value.numel == 0 or weight.numel == 0:
        made = e.full(call.shape, 0, value.dtype)
    elif transposed:  # the promised shape includes `output_padding`
        made = _spread(value, weight, window, call.shape[2:])
    else:
        made = _correlate(value, weight, window, call.shape[2:])
    if bias is not None:
        bias = e.broadcast_in_dim(bias.to(made.dtype), made.shape, [1])
        made = made + bias
    return made.to(call.dtype)


@lowers("convolution_backward")
def _convolution_backward(
    call: Call,
    gradient: Value,
    value: Value,
    weight: Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    window = _Window.of(value, stride, padding, dilation, groups)
    gradient, value, weight = widened(gradient), widened(value), widened(weight)
    empty = gradient.numel == 0 or value.numel == 0 or weight.numel == 0
    made: list[Value | None] = [None, None, None]
    if output_mask[0]:
        if empty:
            made[0] = e.full(value.shape, 0, value.dtype)
        elif transposed:
            made[0] = _correlate(gradient, weight, window, value.shape[2:])
        else:
            made[0] = _spread(gradient, weight, window, value.shape[2:])
    if output_mask[1]:
        if empty:
            made[1] = e.full(weight.shape, 0, weight.dtype)
        elif transposed:
            made[1] = _weigh(gradient, value, window, weight.shape[2:])
        else:
            made[1] = _weigh(value, gradient, window, weight.shape[2:])
    if output_mask[2]:
        others = [0, *range(2, gradient.rank)]
        made[2] = e.reduce_sum(gradient, others)
    return tuple(
        None if each is None else each.to(promised.dtype)
        for each, promised in zip(made, call.results, strict=True)
    )
