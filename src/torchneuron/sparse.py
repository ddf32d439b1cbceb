"""Sparse matrices in compiled graphs: `torchneuron.sparse.mm` of a matrix given by its members.

`torch.compile` leaves a function with a sparse tensor to eager execution, on every device. What it
can take is the dense tensors that a sparse one is made of. `matrix` gives them, `mm` multiplies
with them, within one graph and with gradients to the values and to the dense factor.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from torchneuron.errors import ArgumentError
from torchneuron.lowering import register


class Matrix(NamedTuple):
    """Hold a sparse matrix (M, K) in compressed rows, as dense tensors.

    Stability: experimental.

    Attributes:
        compressed: Where the entries of each row begin, and the last row's end; int32 or int64,
            (M + 1,).
        plain: The columns of the entries, of the same dtype, (room,). Entries from
            `compressed[-1]` on are not used.
        values: The entries, (room,).
        size: M and K.
    """

    compressed: Tensor
    plain: Tensor
    values: Tensor
    size: tuple[int, int]

    def to(self, *args: Any, **kwargs: Any) -> Matrix:
        """Move, or convert the values, as `Tensor.to` does; the indices keep their dtype."""
        values = self.values.to(*args, **kwargs)
        return Matrix(
            self.compressed.to(values.device), self.plain.to(values.device), values, self.size
        )


def matrix(tensor: Tensor, *, capacity: int | None = None) -> Matrix:
    """Return a sparse matrix as dense tensors that a compiled graph takes.

    Stability: experimental.

    Args:
        tensor: A sparse matrix (M, K) of any layout; COO is coalesced. Where it requires a
            gradient, the values' goes to it.
        capacity: Room for this many entries instead of those there are: matrices of the same
            capacity share a compiled program, whatever they hold.

    Raises:
        ArgumentError: No sparse matrix, or more entries than room.
    """
    if tensor.layout == torch.strided or tensor.dim() != 2:
        raise ArgumentError(
            f"tensor is {_described(tensor)}, not a sparse matrix",
            hint="dense.to_sparse_csr() makes one of a dense matrix",
        )
    # PyTorch turns no blocks into compressed rows but by way of coordinates.
    rows = tensor if tensor.layout == torch.sparse_csr else _coo(tensor).to_sparse_csr()
    if rows.dense_dim():
        raise ArgumentError(
            f"tensor is {_described(tensor)} with dense dimensions, not a matrix of numbers",
            hint="multiply it without torchneuron.sparse, outside compiled functions",
        )
    count = rows.values().shape[0]
    room = 0 if capacity is None else capacity - count
    if room < 0:
        raise ArgumentError(
            f"capacity is {capacity}, and the matrix has {count} entries",
            hint=f"give capacity={1 << (count - 1).bit_length()} or more",
        )
    # A view of a sparse tensor is what Dynamo cannot take either.
    values = rows.values().clone() if rows.requires_grad else rows.values().detach()
    plain = rows.col_indices()
    return Matrix(
        rows.crow_indices(),
        functional.pad(plain, (0, room)) if room else plain,
        functional.pad(values, (0, room)) if room else values,
        (int(rows.shape[0]), int(rows.shape[1])),
    )


def mm(sparse: Matrix | Tensor, dense: Tensor) -> Tensor:
    """Multiply a sparse matrix (M, K) by a dense one (K, N).

    Stability: experimental.

    Args:
        sparse: What `matrix` returns, for compiled graphs; or a sparse tensor, outside of them.
        dense: On the same device, of the values' dtype.

    Returns:
        A dense matrix (M, N). On the host PyTorch's sparse kernel makes it; a program for a chip
        gathers rows of `dense` and adds them up by row. Half types are added up in float32.

    Raises:
        ArgumentError: The shapes, dtypes or devices do not fit.
    """
    if not isinstance(sparse, Matrix):
        found: Tensor = torch.sparse.mm(sparse, dense)
        return found
    if dense.dim() != 2 or dense.shape[0] != sparse.size[1]:
        raise ArgumentError(
            f"dense has shape {tuple(dense.shape)}, and the sparse matrix {tuple(sparse.size)}",
            hint=f"dense is a matrix of {sparse.size[1]} rows",
        )
    if dense.dtype != sparse.values.dtype:
        raise ArgumentError(
            f"dense is {dense.dtype}, and the sparse matrix {sparse.values.dtype}",
            hint=f"convert one: matrix.to({dense.dtype})",
        )
    if dense.device != sparse.values.device:
        raise ArgumentError(
            f"dense is on {dense.device}, and the sparse matrix on {sparse.values.device}",
            hint=f'move one: matrix.to("{dense.device}")',
        )
    made: Tensor = register.csr_mm(sparse.compressed, sparse.plain, sparse.values, dense)
    return made


def _coo(tensor: Tensor) -> Tensor:
    return tensor.to_sparse(layout=torch.sparse_coo)


def _described(tensor: Tensor) -> str:
    return f"a {tensor.layout} tensor of shape {tuple(tensor.shape)}"
