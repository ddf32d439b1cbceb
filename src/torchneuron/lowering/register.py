"""Operators of ours that a graph may hold: products with a sparse matrix, given by its members.

A compiled graph cannot take a sparse tensor, but it can take the three dense tensors that one is
made of. `matrix` here is always in compressed rows (CSR): `compressed` (rows + 1) says where each
row's entries begin, `plain` has their columns, `values` what they are. Entries from
`compressed[-1]` on are room that is not used. The kernels are PyTorch's own for sparse tensors;
what a program does instead is in `ops/sparse.py`. The three are each other's derivatives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_NAMESPACE = "torchneuron"


def _wide(value: Tensor) -> Tensor:
    """Return a half type in float32: PyTorch's sparse kernels know none."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value


def _sparse(
    compressed: Tensor, plain: Tensor, values: Tensor, size: tuple[int, int], layout: torch.layout
) -> Tensor:
    used = int(compressed[-1])
    parts = compressed, plain[:used], _wide(values[:used])
    return torch.sparse_compressed_tensor(*parts, size, layout=layout, check_invariants=False)


@torch.library.custom_op(f"{_NAMESPACE}::csr_mm", mutates_args=())
def csr_mm(compressed: Tensor, plain: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """Multiply a matrix (M, K) by a dense one (K, N)."""
    size = (compressed.shape[0] - 1, dense.shape[0])
    matrix = _sparse(compressed, plain, values, size, torch.sparse_csr)
    return (matrix @ _wide(dense)).to(dense.dtype)


@torch.library.custom_op(f"{_NAMESPACE}::csr_mm_transposed", mutates_args=())
def csr_mm_transposed(
    compressed: Tensor, plain: Tensor, values: Tensor, dense: Tensor, columns: int
) -> Tensor:
    """Multiply the transpose (K, M) of a matrix of K = `columns` by a dense one (M, N)."""
    size = (columns, compressed.shape[0] - 1)
    matrix = _sparse(compressed, plain, values, size, torch.sparse_csc)
    return (matrix @ _wide(dense)).to(dense.dtype)


@torch.library.custom_op(f"{_NAMESPACE}::csr_sampled", mutates_args=())
def csr_sampled(compressed: Tensor, plain: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Multiply (M, N) by the transpose of (K, N), only where the matrix (M, K) has entries."""
    size = (left.shape[0], right.shape[0])
    places = _sparse(compressed, plain, left.new_zeros(plain.shape), size, torch.sparse_csr)
    found = torch.sparse.sampled_addmm(places, _wide(left), _wide(right).mT, beta=0).values()
    made = left.new_zeros(plain.shape)
    made[: found.shape[0]] = found
    return made


@csr_mm.register_fake
def _(compressed: Tensor, plain: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    return dense.new_empty((compressed.shape[0] - 1, dense.shape[1]))


@csr_mm_transposed.register_fake
def _(compressed: Tensor, plain: Tensor, values: Tensor, dense: Tensor, columns: int) -> Tensor:
    return dense.new_empty((columns, dense.shape[1]))


@csr_sampled.register_fake
def _(compressed: Tensor, plain: Tensor, left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(plain.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])


def _of_mm(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    compressed, plain, values, dense = ctx.saved_tensors
    _, _, of_values, of_dense = ctx.needs_input_grad
    return (
        None,
        None,
        csr_sampled(compressed, plain, grad, dense.conj()) if of_values else None,
        csr_mm_transposed(compressed, plain, values.conj(), grad, dense.shape[0])
        if of_dense
        else None,
    )


def _of_mm_transposed(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    compressed, plain, values, dense = ctx.saved_tensors
    _, _, of_values, of_dense, _ = ctx.needs_input_grad
    return (
        None,
        None,
        csr_sampled(compressed, plain, dense.conj(), grad) if of_values else None,
        csr_mm(compressed, plain, values.conj(), grad) if of_dense else None,
        None,
    )


def _of_sampled(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    compressed, plain, left, right = ctx.saved_tensors
    _, _, of_left, of_right = ctx.needs_input_grad
    return (
        None,
        None,
        csr_mm(compressed, plain, grad, right.conj()) if of_left else None,
        csr_mm_transposed(compressed, plain, grad, left.conj(), right.shape[0])
        if of_right
        else None,
    )


for _operator, _gradient in (
    (csr_mm, _of_mm),
    (csr_mm_transposed, _of_mm_transposed),
    (csr_sampled, _of_sampled),
):
    _operator.register_autograd(_gradient, setup_context=_save)
