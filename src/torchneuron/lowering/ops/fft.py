"""Discrete Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.registry import Call, lowers

# By PyTorch's number of a normalization: the power of the element count that divides.
_NORMALIZATIONS = (0.0, 0.5, 1.0)


def _scaled(value: Value, count: int, power: float) -> Value:
    return value if power == 0 or count == 1 else value * float(count) ** -power


def _transform(value: Value, dims: Sequence[int], kind: str, size: int | None = None) -> Value:
    """Transform dimensions as one operation; StableHLO wants them last.

    Args:
        value: What to transform.
        dims: At most three; the last is the one that a real transform halves.
        kind: As `emit.fft` takes it.
        size: Of the last dimension of the real side, for `IRFFT`.
    """
    order = [each for each in range(value.rank) if each not in dims] + list(dims)
    lengths = [value.shape[dim] for dim in dims]
    if size is not None:
        lengths[-1] = size
    made = e.fft(e.transpose(value, order), kind, lengths)
    return e.transpose(made, [order.index(each) for each in range(value.rank)])


def _complex_to_complex(value: Value, dims: Sequence[int], kind: str) -> Value:
    for start in range(0, len(dims), 3):
        value = _transform(value, dims[start : start + 3], kind)
    return value


def _positive(value: Value, dims: Sequence[int]) -> list[int]:
    return [dim % value.rank for dim in dims]


@lowers("_fft_c2c")
def _fft_c2c(
    call: Call, value: Value, dim: Sequence[int], normalization: int, forward: bool
) -> Value:
    if not value.numel or not dim:
        return value
    dims = _positive(value, dim)
    made = _complex_to_complex(value, dims, "FFT" if forward else "IFFT")
    count = math.prod(value.shape[each] for each in dims)
    return _scaled(made, count, _NORMALIZATIONS[normalization] - (0 if forward else 1))


@lowers("_fft_r2c")
def _fft_r2c(
    call: Call, value: Value, dim: Sequence[int], normalization: int, onesided: bool
) -> Value:
    if not value.numel:
        return e.full(call.shape, 0, call.dtype)
    dims = _positive(value, dim)
    if onesided:
        *others, last = dims
        made = _complex_to_complex(_transform(value, [last], "RFFT"), others, "FFT")
    else:
        made = _complex_to_complex(value.to(call.dtype), dims, "FFT")
    count = math.prod(value.shape[each] for each in dims)
    return _scaled(made, count, _NORMALIZATIONS[normalization])


@lowers("_fft_c2r")
def _fft_c2r(
    call: Call, value: Value, dim: Sequence[int], normalization: int, last_dim_size: int
) -> Value:
    if not value.numel:
        return e.full(call.shape, 0, call.dtype)
    *others, last = dims = _positive(value, dim)
    half = last_dim_size // 2 + 1  # the rest would be redundant
    value = e.slice_dim(value, last, 0, half)
    made = _transform(_complex_to_complex(value, others, "IFFT"), [last], "IRFFT", last_dim_size)
    count = math.prod(call.shape[each] for each in dims)
    return _scaled(made, count, _NORMALIZATIONS[normalization] - 1)
