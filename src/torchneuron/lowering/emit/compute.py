"""Computing elements: functions of one number, reductions, matrix products, convolutions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import jaxlib.mlir.ir as ir
import torch
from jaxlib.mlir.dialects import chlo
from jaxlib.mlir.dialects import stablehlo as hlo

from torchneuron.lowering.emit.movement import bitcast, expand_dims, fill_block
from torchneuron.lowering.emit.types import tensor_type
from torchneuron.lowering.emit.value import (
    Operand,
    Scalar,
    Value,
    binary,
    full,
    select,
    together,
    unary,
    wrap,
)


def _of_one(build: Any) -> Callable[[Value], Value]:
    return lambda value: unary(build, value)


def _of_two(build: Any) -> Callable[[Operand, Operand], Value]:
    return lambda left, right: binary(build, left, right)


exp, exp2 = _of_one(hlo.exponential), lambda value: exp(value * math.log(2.0))
expm1, log, log1p = _of_one(hlo.exponential_minus_one), _of_one(hlo.log), _of_one(hlo.log_plus_one)
sqrt, rsqrt, tanh = _of_one(hlo.sqrt), _of_one(hlo.rsqrt), _of_one(hlo.tanh)
sin, cos, tan = _of_one(hlo.sine), _of_one(hlo.cosine), _of_one(hlo.tan)
sinh, cosh = _of_one(chlo.sinh), _of_one(chlo.cosh)
asin, acos, atan = _of_one(chlo.asin), _of_one(chlo.acos), _of_one(chlo.atan)
asinh, acosh, atanh = _of_one(chlo.asinh), _of_one(chlo.acosh), _of_one(chlo.atanh)
erf, erfc, erf_inv = _of_one(chlo.erf), _of_one(chlo.erfc), _of_one(chlo.erf_inv)
lgamma, digamma = _of_one(chlo.lgamma), _of_one(chlo.digamma)
zeta, polygamma = _of_two(chlo.zeta), _of_two(chlo.polygamma)
absolute, sign = _of_one(hlo.abs), _of_one(hlo.sign)
floor, ceil, round_even = _of_one(hlo.floor), _of_one(hlo.ceil), _of_one(hlo.round_nearest_even)
sigmoid, isfinite = _of_one(hlo.logistic), _of_one(hlo.is_finite)
popcount = _of_one(hlo.popcnt)
real, imag = _of_one(hlo.real), _of_one(hlo.imag)

minimum, maximum = _of_two(hlo.minimum), _of_two(hlo.maximum)
remainder, atan2 = _of_two(hlo.remainder), _of_two(hlo.atan2)
shift_left, shift_right = _of_two(hlo.shift_left), _of_two(hlo.shift_right_arithmetic)
shift_right_logical = _of_two(hlo.shift_right_logical)
make_complex = _of_two(hlo.complex)


def isnan(value: Value) -> Value:
    """Find not-a-number."""
    return value.ne(value)


def trunc(value: Value) -> Value:
    """Round toward zero."""
    return select(value < 0, ceil(value), floor(value))


def isinf(value: Value) -> Value:
    """Find both infinities."""
    return absolute(value).eq(math.inf)


def clamp(value: Value, low: Operand | None, high: Operand | None) -> Value:
    """Limit; not-a-number stays."""
    if low is not None:
        value = maximum(value, low)
    return value if high is None else minimum(value, high)


def absolute_of(value: Value) -> Value:
    """Take the absolute value, of unsigned numbers too."""
    return value if not value.dtype.is_signed else absolute(value)


def sign_of(value: Value) -> Value:
    """Take the sign, of unsigned numbers too."""
    return sign(value) if value.dtype.is_signed else value.ne(0).to(value.dtype)


def signbit(value: Value) -> Value:
    """Find negative numbers, negative zero and negative not-a-number among them."""
    if not value.is_float:
        return value < 0 if value.dtype.is_signed else full(value.shape, False, torch.bool)
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64, 1: torch.int8}[value.dtype.itemsize]
    return bitcast(value, value.shape, integer) < 0


def copysign(size: Operand, sign_from: Operand) -> Value:
    """Give a number another one's sign."""
    size, sign_from = together(size, sign_from)
    positive = absolute(size)
    return select(signbit(sign_from), -positive, positive)


Combine = Callable[[Value, Value], Value]


def lowest(dtype: torch.dtype) -> Scalar:
    """Return what every number of a dtype is at least."""
    if dtype == torch.bool:
        return False
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> Scalar:
    """Return what every number of a dtype is at most."""
    if dtype == torch.bool:
        return True
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max


def reduce(
    value: Value,
    start: Scalar,
    dims: Sequence[int],
    combine: Combine,
    *,
    keepdim: bool = False,
) -> Value:
    """Reduce dimensions with an associative function of two scalars."""
    dims = sorted({dim % value.rank for dim in dims}) if value.rank else []
    if not dims:
        return value
    shape = tuple(size for dim, size in enumerate(value.shape) if dim not in dims)
    op = hlo.ReduceOp(
        [tensor_type(shape, value.dtype)],
        [value.ir],
        [full((), start, value.dtype).ir],
        ir.DenseI64ArrayAttr.get(dims),
    )
    fill_block(op.regions[0], [value.dtype] * 2, lambda a, b: [combine(a, b)])
    made = Value(op.result, shape, value.dtype)
    return expand_dims(made, dims) if keepdim else made


def reduce_sum(value: Value, dims: Sequence[int], *, keepdim: bool = False) -> Value:
    """Add up."""
    return reduce(value, 0, dims, lambda a, b: a + b, keepdim=keepdim)


def reduce_max(value: Value, dims: Sequence[int], *, keepdim: bool = False) -> Value:
    """Take the largest; not-a-number wins."""
    return _reduce_extreme(value, lowest(value.dtype), dims, maximum, keepdim)


def reduce_min(value: Value, dims: Sequence[int], *, keepdim: bool = False) -> Value:
    """Take the smallest; not-a-number wins."""
    return _reduce_extreme(value, highest(value.dtype), dims, minimum, keepdim)


# Whether what is written is for XLA:CPU; else it is for a chip's compiler.
_for_host: ContextVar[bool] = ContextVar("torchneuron_for_host", default=False)


@contextlib.contextmanager
def for_host(is_for_host: bool = True) -> Iterator[None]:
    """Write what XLA:CPU computes rightly, where that is not what a chip's compiler takes."""
    token = _for_host.set(is_for_host)
    try:
        yield
    finally:
        _for_host.reset(token)


def is_for_host() -> bool:
    """Return whether what is written is for XLA:CPU."""
    return _for_host.get()


def _reduce_extreme(
    value: Value, start: Scalar, dims: Sequence[int], of_two: Combine, keepdim: bool
) -> Value:
    """Reduce with a maximum or minimum that keeps not-a-number, as StableHLO's own does.

    XLA:CPU hands a reduction by that `maximum` to a library that drops not-a-number (whatever
    `xla_cpu_enable_fast_min_max` says), so for this host floats compare and select. Half types go
    through float32, for which that form is vectorized.
    """
    if not value.is_float or not is_for_host():
        return reduce(value, start, dims, of_two, keepdim=keepdim)
    wide = value.to(torch.float32) if value.dtype.itemsize < 4 else value

    def keep_nan(a: Value, b: Value) -> Value:
        ahead = a > b if of_two is maximum else a < b
        return select(ahead | isnan(a), a, b)

    return reduce(wide, start, dims, keep_nan, keepdim=keepdim).to(value.dtype)


def reduce_window(
    value: Value,
    start: Scalar,
    combine: Combine,
    *,
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> Value:
    """Reduce each window; sizes, strides and padding (with `start`) cover all dimensions."""
    shape = tuple(
        max((size + low + high - window) // stride + 1, 0)
        for size, (low, high), window, stride in zip(
            value.shape, padding, sizes, strides, strict=True
        )
    )
    pads = ir.DenseIntElementsAttr.get(torch.tensor([list(each) for each in padding]).numpy())
    op = hlo.ReduceWindowOp(
        [tensor_type(shape, value.dtype)],
        [value.ir],
        [full((), start, value.dtype).ir],
        ir.DenseI64ArrayAttr.get(list(sizes)),
        window_strides=ir.DenseI64ArrayAttr.get(list(strides)),
        padding=pads,
    )
    fill_block(op.regions[0], [value.dtype] * 2, lambda a, b: [combine(a, b)])
    return Value(op.result, shape, value.dtype)


def dot_general(
    left: Value,
    right: Value,
    contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Value:
    """Contract dimensions of two values; the result is batch, left's others, right's others.

    Args:
        left: First factor.
        right: Second factor, of the same dtype.
        contract: Dimensions of each to sum over, in pairs.
        batch: Dimensions of each that go together, in pairs.
    """
    numbers = hlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=list(batch[0]),
        rhs_batching_dimensions=list(batch[1]),
        lhs_contracting_dimensions=list(contract[0]),
        rhs_contracting_dimensions=list(contract[1]),
    )
    shape = (
        *(left.shape[dim] for dim in batch[0]),
        *(s for d, s in enumerate(left.shape) if d not in (*batch[0], *contract[0])),
        *(s for d, s in enumerate(right.shape) if d not in (*batch[1], *contract[1])),
    )
    made = hlo.dot_general(tensor_type(shape, left.dtype), left.ir, right.ir, numbers)
    return Value(made, shape, left.dtype)


def matmul(left: Value, right: Value) -> Value:
    """Multiply matrices in the last two dimensions; leading dimensions are equal batches."""
    batch = range(left.rank - 2)
    return dot_general(left, right, ([left.rank - 1], [right.rank - 2]), (batch, batch))


def convolution(
    value: Value,
    weight: Value,
    *,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    input_dilation: Sequence[int],
    weight_dilation: Sequence[int],
    layouts: tuple[str, str, str],
    groups: int = 1,
) -> Value:
    """Convolve.

    Args:
        value: Input.
        weight: Kernel, of the same dtype.
        strides: Per spatial dimension, as the next three.
        padding: Elements before and after; negative numbers crop.
        input_dilation: Distance between input elements, 1 for adjacent.
        weight_dilation: Distance between kernel elements.
        layouts: Dimension letters of input, weight and output: `N` batch, `C` input features of
            the input and features of the output, `I` and `O` features of the weight, digits for
            spatial dimensions; e.g. ("NC01", "OI01", "NC01").
        groups: Feature groups.
    """
    inputs, weights, outputs = layouts
    spatial = sorted(each for each in inputs if each.isdigit())
    numbers = hlo.ConvDimensionNumbers.get(
        input_batch_dimension=inputs.index("N"),
        input_feature_dimension=inputs.index("C"),
        input_spatial_dimensions=[inputs.index(each) for each in spatial],
        kernel_input_feature_dimension=weights.index("I"),
        kernel_output_feature_dimension=weights.index("O"),
        kernel_spatial_dimensions=[weights.index(each) for each in spatial],
        output_batch_dimension=outputs.index("N"),
        output_feature_dimension=outputs.index("C"),
        output_spatial_dimensions=[outputs.index(each) for each in spatial],
    )
    sizes: dict[str, int] = {
        "N": value.shape[inputs.index("N")],
        "C": weight.shape[weights.index("O")],
    }
    for place, digit in enumerate(spatial):
        size = value.shape[inputs.index(digit)]
        based = (size - 1) * input_dilation[place] + 1 if size else 0
        window = (weight.shape[weights.index(digit)] - 1) * weight_dilation[place] + 1
        sizes[digit] = max((based + sum(padding[place]) - window) // strides[place] + 1, 0)
    shape = tuple(sizes[each] for each in outputs)
    made = hlo.convolution(
        tensor_type(shape, value.dtype),
        value.ir,
        weight.ir,
        numbers,
        feature_group_count=groups,
        batch_group_count=1,
        window_strides=ir.DenseI64ArrayAttr.get(list(strides)),
        padding=ir.DenseIntElementsAttr.get(
            torch.tensor([list(each) for each in padding], dtype=torch.int64)
            .reshape(len(spatial), 2)
            .numpy()
        ),
        lhs_dilation=ir.DenseI64ArrayAttr.get(list(input_dilation)),
        rhs_dilation=ir.DenseI64ArrayAttr.get(list(weight_dilation)),
        window_reversal=ir.DenseBoolArrayAttr.get([False] * len(spatial)),
    )
    return Value(made, shape, value.dtype)


def fft(value: Value, kind: str, lengths: Sequence[int]) -> Value:
    """Transform the last dimensions, at most three.

    Args:
        value: Complex; for `RFFT` real.
        kind: `FFT`, `IFFT` (divides by the number of elements), `RFFT` (keeps the half of the last
            dimension that is not redundant) or `IRFFT` (its inverse).
        lengths: Sizes of these dimensions before (`IRFFT`: after) the transform.
    """
    attribute = hlo.FftTypeAttr.get(kind)
    return wrap(hlo.fft(value.ir, attribute, ir.DenseI64ArrayAttr.get(list(lengths))))
