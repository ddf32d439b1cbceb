"""Products of matrices and vectors.

A product of half types is computed in float32 and rounded once, after the scaling and the addend
that the operator has. The factors are converted first: XLA:CPU cannot run every product whose
result is wider than its factors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Scalar, Value
from torchneuron.lowering.ops.reduce import widened
from torchneuron.lowering.registry import Call, lowers

Dims = tuple[Sequence[int], Sequence[int]]

_MATRICES: tuple[Dims, Dims] = (([1], [0]), ((), ()))
_BATCHES: tuple[Dims, Dims] = (([2], [1]), ([0], [0]))
_VECTORS: tuple[Dims, Dims] = (([0], [0]), ((), ()))
# A batch summed over: both dimensions are contracted at once.
_SUMMED: tuple[Dims, Dims] = (([0, 2], [0, 1]), ((), ()))


def _product(left: Value, right: Value, dims: tuple[Dims, Dims]) -> Value:
    """Contract, in float32 where the factors are of a half type."""
    return e.dot_general(widened(left), widened(right), *dims)


def _plus_product(call: Call, addend: Value, product: Value, beta: Scalar, alpha: Scalar) -> Value:
    """Compute `beta * addend + alpha * product`; with beta zero the addend's NaNs do not count."""
    if not (product.is_float or product.is_complex):
        beta, alpha = int(beta.real), int(alpha.real)
    made = product if alpha == 1 else product * alpha
    if beta != 0:
        addend = addend.to(product.dtype)
        made = made + (addend if beta == 1 else addend * beta)
    return e.broadcast_to(made, call.shape).to(call.dtype)


@lowers("mm")
def _mm(call: Call, left: Value, right: Value) -> Value:
    return _product(left, right, _MATRICES).to(call.dtype)


@lowers("bmm")
def _bmm(call: Call, left: Value, right: Value) -> Value:
    return _product(left, right, _BATCHES).to(call.dtype)


@lowers("mv")
def _mv(call: Call, matrix: Value, vector: Value) -> Value:
    return _product(matrix, vector, _MATRICES).to(call.dtype)


@lowers("dot")
def _dot(call: Call, left: Value, right: Value) -> Value:
    return _product(left, right, _VECTORS).to(call.dtype)


@lowers("vdot")
def _vdot(call: Call, left: Value, right: Value) -> Value:
    if left.is_complex:
        left = e.make_complex(e.real(left), -e.imag(left))
    return _product(left, right, _VECTORS).to(call.dtype)


# The sum of as many products of int8 numbers is exact in float32: each is at most 2**14.
_EXACT_INNER = 1 << 10


@lowers("_int_mm")
def _int_mm(call: Call, left: Value, right: Value) -> Value:
    """Multiply int8 matrices as exact runs of floats: of integers chips have no products."""
    inner = left.shape[1]
    made = e.full(call.shape, 0, call.dtype)
    for start in range(0, inner, _EXACT_INNER):
        stop = min(start + _EXACT_INNER, inner)
        parts = e.slice_dim(left, 1, start, stop), e.slice_dim(right, 0, start, stop)
        first, second = (each.to(torch.float32) for each in parts)
        made = made + _product(first, second, _MATRICES).to(call.dtype)
    return made


@lowers("addmm")
def _addmm(
    call: Call, addend: Value, left: Value, right: Value, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    return _plus_product(call, addend, _product(left, right, _MATRICES), beta, alpha)


@lowers("addmv")
def _addmv(
    call: Call, addend: Value, matrix: Value, vector: Value, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    return _plus_product(call, addend, _product(matrix, vector, _MATRICES), beta, alpha)


@lowers("baddbmm")
def _baddbmm(
    call: Call, addend: Value, left: Value, right: Value, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    return _plus_product(call, addend, _product(left, right, _BATCHES), beta, alpha)


@lowers("addbmm")
def _addbmm(
    call: Call, addend: Value, left: Value, right: Value, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    return _plus_product(call, addend, _product(left, right, _SUMMED), beta, alpha)


@lowers("_trilinear")
def _trilinear(
    call: Call,
    first: Value,
    second: Value,
    third: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Value:
    """Multiply three tensors after inserting dimensions into each, and sum over some."""
    pairs = ((first, expand1), (second, expand2), (third, expand3))
    one, two, three = (e.expand_dims(widened(value), dims) for value, dims in pairs)
    return e.reduce_sum(one * two * three, sumdim).to(call.dtype)
