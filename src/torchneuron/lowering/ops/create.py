"""Tensors made from numbers: filled, counted, and the masks that counting gives."""

from __future__ import annotations

from typing import Any

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.registry import Call, lowers


@lowers("full", "full_like")
def _full(call: Call, _like: Any, number: Any, **_: Any) -> Value:
    return e.full(call.shape, number, call.dtype)


@lowers("new_full")
def _new_full(call: Call, _like: Value, _size: Any, number: Any, **_: Any) -> Value:
    return e.full(call.shape, number, call.dtype)


@lowers("ones", "ones_like", "new_ones")
def _ones(call: Call, *_: Any, **__: Any) -> Value:
    return e.full(call.shape, 1, call.dtype)


# Memory without contents reads as zeros: a program has no uninitialized values.
@lowers(
    *"zeros zeros_like new_zeros new_empty new_empty_strided".split(),
    *"empty.memory_format empty_like empty_strided empty_permuted".split(),
)
def _zeros(call: Call, *_: Any, **__: Any) -> Value:
    return e.full(call.shape, 0, call.dtype)


@lowers("scalar_tensor")
def _scalar(call: Call, number: Any, **_: Any) -> Value:
    return e.full((), number, call.dtype)


def _count(call: Call, start: Any, step: Any) -> Value:
    """Count from `start`; floats are computed in double as the CPU does, then rounded once.

    Whole numbers that float32 holds need no double, which chips do not have.
    """
    wide = torch.float64 if call.dtype.is_floating_point else torch.int64
    if wide.is_floating_point and start == int(start) and step == int(step):
        largest = max(abs(start), abs(start + step * call.shape[0]))
        wide = torch.float32 if largest <= 1 << 24 else wide
    numbers = e.iota(call.shape, 0, wide)
    if not wide.is_floating_point:
        start, step = int(start), int(step)
    if step != 1:
        numbers = numbers * step
    return (numbers + start if start else numbers).to(call.dtype)


@lowers("arange")
def _arange(call: Call, _end: Any, **_: Any) -> Value:
    return _count(call, 0, 1)


@lowers("arange.start")
def _arange_from(call: Call, start: Any, _end: Any, **_: Any) -> Value:
    return _count(call, start, 1)


@lowers("arange.start_step")
def _arange_by(call: Call, start: Any, _end: Any, step: Any = 1, **_: Any) -> Value:
    return _count(call, start, step)


@lowers("prims.iota")
def _iota(call: Call, _length: int, *, start: int, step: int, **_: Any) -> Value:
    return _count(call, start, step)


def below_diagonal(shape: tuple[int, ...], offset: int) -> Value:
    """Mask, in the last two dimensions, what is on or below the diagonal `offset` to the right."""
    rows, columns = (e.iota(shape[-2:], dim) for dim in range(2))
    return columns <= (rows + offset if offset else rows)


@lowers("eye", "eye.m")
def _eye(call: Call, *_: Any, **__: Any) -> Value:
    return e.iota(call.shape, 0).eq(e.iota(call.shape, 1)).to(call.dtype)


@lowers("tril")
def _tril(call: Call, x: Value, diagonal: int = 0) -> Value:
    return e.select(below_diagonal(call.shape, diagonal), x, 0)


@lowers("triu")
def _triu(call: Call, x: Value, diagonal: int = 0) -> Value:
    return e.select(below_diagonal(call.shape, diagonal - 1), e.full_like(x, 0), x)
