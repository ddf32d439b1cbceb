"""Which ATen operators are taken apart before lowering, and into what."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._decomp import (
    _core_aten_decompositions_post_autograd,
    core_aten_decompositions,
    get_decompositions,
)
from torch._ops import OpOverload

from torchneuron.lowering import grouped, recurrent, sparse_gradients
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


@functools.cache
def decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return PyTorch's decompositions of what the lowering table has no rule for."""
    import torchneuron.lowering.ops  # noqa: F401 (its import fills the table)

    packets = [getattr(torch.ops.aten, name) for name in _MORE if hasattr(torch.ops.aten, name)]
    chosen: dict[Any, Any] = {
        **_core_aten_decompositions_post_autograd(),
        **get_decompositions(packets),
        **recurrent.CELLS,
        torch.ops.aten._grouped_mm.default: grouped.grouped_mm,
        torch.ops.aten._weight_norm_interface_backward.default: weight_norm_backward,
        torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer,
    }
    # A rule has the dense case of this one.
    bag = torch.ops.aten._embedding_bag_backward.default
    return {**_without_rules(chosen), bag: sparse_gradients.of_embedding_bag}


@functools.cache
def with_composites() -> dict[OpOverload, Callable[..., Any]]:
    """Return these and those of composites, which `torch.export` keeps and dispatch takes apart.

    Collecting them takes PyTorch a quarter of a second.
    """
    return {**_without_rules(core_aten_decompositions()), **decompositions()}


def _without_rules(chosen: Mapping[Any, Any]) -> dict[OpOverload, Callable[..., Any]]:
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
