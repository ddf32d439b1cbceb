"""Sparse gradients of embeddings, taken apart: which rows, and what is added to each.

Both are known in shape from the indices, so a program makes them, and the sparse tensor is put
together behind it. PyTorch leaves the entries of `padding_idx` out, so that their number depends on
the data; here they are there and zero, which changes no row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
_SUM, _MEAN = range(2)


def _gradient(values: Tensor, indices: Tensor, num_weights: int, padding_idx: int) -> Tensor:
    if padding_idx >= 0:
        values = torch.where((indices != padding_idx)[:, None], values, 0)
    size = [num_weights, values.shape[1]]
    made: Tensor = aten._sparse_coo_tensor_unsafe(indices[None, :], values, size)
    return made


def of_embedding(
    gradient: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Take `aten::embedding_sparse_backward` apart.

    Raises:
        RuntimeError: As PyTorch's own does, for `scale_grad_by_freq`.
    """
    if scale_grad_by_freq:
        raise RuntimeError(
            "embedding_backward: scale_grad_by_freq not supported with sparse gradients"
        )
    values = gradient.reshape(-1, gradient.shape[-1])
    return _gradient(values, indices.reshape(-1), num_weights, padding_idx)


def of_embedding_bag(
    gradient: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    """Take `aten::_embedding_bag_backward` apart where it is sparse; else the table has a rule."""
    if not sparse or scale_grad_by_freq or mode not in (_SUM, _MEAN):
        return NotImplemented
    bags = gradient.shape[0]
    places = torch.arange(indices.shape[0], device=indices.device)
    bag = (offsets[None, :bags] <= places[:, None]).sum(1) - 1
    if mode == _MEAN:
        used = torch.ones_like(bag) if padding_idx < 0 else (indices != padding_idx).to(bag.dtype)
        count = torch.zeros_like(bag[:1]).expand(bags).index_add(0, bag, used)
        gradient = gradient / count.clamp(min=1)[:, None].to(gradient.dtype)
    values = gradient[bag]
    if per_sample_weights is not None:
        values = values * per_sample_weights[:, None]
    return _gradient(values, indices, num_weights, padding_idx)
