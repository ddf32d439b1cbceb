"""Conversions between dtypes, by value and by bits, and complex numbers and their parts."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.registry import Call, lowers


@lowers("_to_copy")
def _to_copy(call: Call, x: Value, **_: Any) -> Value:
    return x.to(call.dtype)


@lowers("prims.convert_element_type")
def _convert_element_type(call: Call, x: Value, _dtype: torch.dtype) -> Value:
    return x.to(call.dtype)


@lowers("copy")
def _copy(call: Call, _old: Value, x: Value, _non_blocking: bool = False) -> Value:
    return e.broadcast_to(x.to(call.dtype), call.shape)


@lowers("view.dtype", "view_copy.dtype")
def _view_dtype(call: Call, x: Value, dtype: torch.dtype) -> Value:
    """Read the bits as another dtype; the last dimension counts elements of the new width."""
    if dtype == x.dtype:
        return x
    if x.is_complex:
        parts = _view_as_real(call, x)
        flat = e.reshape(parts, (*x.shape[:-1], -1)) if x.rank else parts
        return _view_dtype(call, flat, dtype)
    if dtype.is_complex:
        part = torch.float32 if dtype == torch.complex64 else torch.float64
        return _view_as_complex(call, e.reshape(_view_dtype(call, x, part), (*call.shape, 2)))
    if torch.bool in (x.dtype, dtype):
        return _view_bool(x, dtype)
    old, new = x.dtype.itemsize, dtype.itemsize
    if old == new:
        return e.bitcast(x, x.shape, dtype)
    if old > new:
        split = e.bitcast(x, (*x.shape, old // new), dtype)
        return e.reshape(split, (*x.shape[:-1], x.shape[-1] * (old // new)))
    joined = (*x.shape[:-1], x.shape[-1] // (new // old))
    return e.bitcast(e.reshape(x, (*joined, new // old)), joined, dtype)


def _view_bool(x: Value, dtype: torch.dtype) -> Value:
    if x.dtype.itemsize != dtype.itemsize:
        raise NotImplementedError(f"view of {x.dtype} as {dtype}")
    return x.to(torch.uint8).to(dtype) if dtype != torch.bool else x.to(torch.bool)


@lowers("view_as_real")
def _view_as_real(_call: Call, x: Value) -> Value:
    parts = [e.expand_dims(each, [x.rank]) for each in (e.real(x), e.imag(x))]
    return e.concatenate(parts, x.rank)


@lowers("view_as_complex")
def _view_as_complex(_call: Call, x: Value) -> Value:
    last = x.rank - 1
    real, imag = (
        e.reshape(e.slice_dim(x, last, part, part + 1), x.shape[:-1]) for part in range(2)
    )
    return e.make_complex(real, imag)


@lowers("complex")
def _complex(call: Call, real: Value, imag: Value) -> Value:
    part = _part_dtype(call)
    return e.make_complex(real.to(part), imag.to(part))


@lowers("polar")
def _polar(call: Call, size: Value, angle: Value) -> Value:
    part = _part_dtype(call)
    size, angle = size.to(part), angle.to(part)
    return e.make_complex(size * e.cos(angle), size * e.sin(angle))


def _part_dtype(call: Call) -> torch.dtype:
    parts = {torch.complex64: torch.float32, torch.complex128: torch.float64}
    if call.dtype not in parts:
        raise NotImplementedError(f"{call.target} of {call.dtype}")
    return parts[call.dtype]


@lowers("real")
def _real(_call: Call, x: Value) -> Value:
    return e.real(x) if x.is_complex else x


@lowers("imag")
def _imag(_call: Call, x: Value) -> Value:
    return e.imag(x)


@lowers("angle")
def _angle(call: Call, x: Value) -> Value:
    """Take the argument; a real number's is zero or pi, and not-a-number stays."""
    if x.is_complex:
        return e.atan2(e.imag(x), e.real(x))
    x = x.to(call.dtype)
    return e.select(e.isnan(x), x, e.select(x < 0, e.full_like(x, math.pi), 0))


@lowers("_conj", "conj_physical", "_conj_physical")
def _conj(_call: Call, x: Value) -> Value:
    return e.make_complex(e.real(x), -e.imag(x)) if x.is_complex else x


@lowers("_neg_view")
def _negative(_call: Call, x: Value) -> Value:
    return -x
