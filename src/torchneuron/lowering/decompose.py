"""Which ATen operators are taken apart before lowering, and into what."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._ops import OpOverload

from torchneuron.lowering.encoder import encoder_layer
from torchneuron.lowering.registry import TABLE

# Beyond PyTorch's own core set: what its tables can take apart and ours need not know.
_MORE = (
    "addcdiv addcmul addmv addr aminmax binary_cross_entropy_with_logits celu count_nonzero "
    "cudnn_batch_norm deg2rad diag_embed diagonal_backward dist dot elu elu_backward "
    "embedding_dense_backward gelu_backward glu glu_backward grid_sampler_2d hardshrink "
    "hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh_backward heaviside "
    "huber_loss huber_loss_backward index_add index_copy index_fill isin l1_loss leaky_relu "
    "leaky_relu_backward linspace log_sigmoid_backward log_sigmoid_forward logspace "
    "logit_backward masked_fill masked_scatter mish mish_backward mse_loss mse_loss_backward "
    "multi_margin_loss mv nan_to_num narrow native_batch_norm_backward native_dropout_backward "
    "native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward "
    "new_empty new_full new_ones new_zeros nll_loss_backward nll_loss_forward "
    "nll_loss2d_backward nll_loss2d_forward norm reflection_pad1d_backward "
    "reflection_pad2d_backward reflection_pad3d_backward renorm rot90 select_backward "
    "select_scatter slice_backward slice_scatter smooth_l1_loss smooth_l1_loss_backward "
    "soft_margin_loss softplus softplus_backward softshrink stack std t tanh_backward threshold "
    "threshold_backward trace tril triu unfold_backward upsample_bilinear2d upsample_nearest1d "
    "upsample_nearest2d upsample_nearest3d vdot xlogy zero zeros_like "
    "tril_indices triu_indices upsample_bicubic2d upsample_trilinear3d"
).split()


@functools.cache
def decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return PyTorch's decompositions of what the lowering table has no rule for."""
    import torchneuron.lowering.ops  # noqa: F401 (its import fills the table)

    packets = [getattr(torch.ops.aten, name) for name in _MORE if hasattr(torch.ops.aten, name)]
    chosen = {
        **core_aten_decompositions(),
        **get_decompositions(packets),
        torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer,
    }
    return {
        target: rule
        for target, rule in chosen.items()
        if target not in TABLE and not draws_numbers(target)
    }


def draws_numbers(target: object) -> bool:
    """Return whether an operator draws random numbers.

    PyTorch takes some of these apart into draws of another kind, which give other numbers than
    eager for the same seed. Attention is tagged for the dropout that it may contain.
    """
    return (
        isinstance(target, OpOverload)
        and torch.Tag.nondeterministic_seeded in target.tags
        and "scaled_dot_product" not in target.name()
    )
