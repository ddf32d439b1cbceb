"""The gradient of a weight in direction and length; PyTorch takes only the forward apart."""

from __future__ import annotations

import torch
from torch import Tensor


def weight_norm_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Decompose `aten::_weight_norm_interface_backward`; `dim` is the one that keeps a length.

    With w = v * g / |v|: dg = <dw, v> / |v| and dv = g / |v| * (dw - v * <dw, v> / |v|^2).
    """
    kept = dim % saved_v.dim()
    others = [each for each in range(saved_v.dim()) if each != kept]
    # The norms of a half type are kept in float32.
    norms = saved_norms.to(torch.promote_types(saved_v.dtype, torch.float32))
    wide_grad, wide_v = grad_w.to(norms.dtype), saved_v.to(norms.dtype)
    inner = (wide_grad * wide_v).sum(others, keepdim=True)
    grad_v = saved_g / norms * (wide_grad - wide_v * (inner / (norms * norms)))
    return grad_v.to(saved_v.dtype), (inner / norms).to(saved_g.dtype)
