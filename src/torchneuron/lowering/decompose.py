"""Which ATen operators are taken apart before lowering, and into what."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import _core_aten_decompositions_post_autograd, get_decompositions
from torch._ops import OpOverload

from torchneuron.lowering import grouped, recurrent
from torchneuron.lowering.encoder import encoder_layer
from torchneuron.lowering.registry import TABLE
from torchneuron.lowering.weight_norm import weight_norm_backward

# Beyond PyTorch's own core set: what its tables can take apart and ours need not know.
_MORE = (
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d addmv dist elu "
    "grid_sampler_2d leaky_relu native_layer_norm slice_scatter std tril_indices "
    "triu_indices upsample_bicubic2d upsample_bilinear2d upsample_nearest1d upsample_nearest2d "
    "upsample_nearest3d upsample_trilinear3d"
).split()
# Of the core set all the same.
_CORE_COMPOSITES: tuple[Any, ...] = (
    torch.ops.aten.adaptive_avg_pool1d.default,
    torch.ops.aten.avg_pool1d.default,
    torch.ops.aten.var.dim,
)


@functools.cache
def decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return PyTorch's decompositions of what the lowering table has no rule for."""
    import torchneuron.lowering.ops  # noqa: F401 (its import fills the table)

    packets = [getattr(torch.ops.aten, name) for name in _MORE if hasattr(torch.ops.aten, name)]
    # The public table has all composites too: a quarter of a second for what dispatch takes apart.
    chosen: dict[Any, Any] = {
        **_core_aten_decompositions_post_autograd(),
        **{composite: composite.decompose for composite in _CORE_COMPOSITES},
        **get_decompositions(packets),
        **recurrent.CELLS,
        torch.ops.aten._grouped_mm.default: grouped.grouped_mm,
        torch.ops.aten._weight_norm_interface_backward.default: weight_norm_backward,
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
