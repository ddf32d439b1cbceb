"""What a whole layer of `torch.nn.TransformerEncoder` is made of.

Without gradients the module calls one operator for the layer, on this device as on the CPU.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Decompose `aten::_transformer_encoder_layer_fwd`; the arguments are the operator's."""

    def norm(value: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(value, [embed_dim], weight, bias, eps)

    if src.numel() == 0:
        return src.clone()
    inner = norm(src, norm_weight_1, norm_bias_1) if norm_first else src
    projected = F.linear(inner, qkv_weight, qkv_bias)
    mixed = _attend(projected, num_heads, _four_dimensional(mask, mask_type))
    value = src + F.linear(mixed, proj_weight, proj_bias)
    if not norm_first:
        value = norm(value, norm_weight_1, norm_bias_1)
    inner = norm(value, norm_weight_2, norm_bias_2) if norm_first else value
    hidden = F.linear(inner, ffn_weight_1, ffn_bias_1)
    hidden = F.gelu(hidden) if use_gelu else F.relu(hidden)
    value = value + F.linear(hidden, ffn_weight_2, ffn_bias_2)
    return value if norm_first else norm(value, norm_weight_2, norm_bias_2)


def _attend(projected: Tensor, heads: int, mask: Tensor | None) -> Tensor:
    """Attend with queries, keys and values side by side; a fully masked row is not-a-number."""
    batch, length, width = projected.shape
    split = projected.reshape(batch, length, 3, heads, width // 3 // heads)
    query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)
    mixed = torch.softmax(scores, -1) @ value
    return mixed.transpose(1, 2).reshape(batch, length, width // 3)


def _four_dimensional(mask: Tensor | None, mask_type: int | None) -> Tensor | None:
    """Return what is masked out, to broadcast over (batch, heads, queries, keys).

    Type 0 is a mask of queries and keys, 1 of batch and keys, 2 of all four dimensions.
    """
    if mask is None:
        return None
    mask = mask.to(torch.bool)
    return mask[:, None, None, :] if mask_type == 1 else mask
