"""Rewrite tensors to other layouts: what strided kernels get wrong, they get wrong here."""

from collections.abc import Callable

import torch

from conformance.placement import map_leaves
from conformance.upstream import SampleInput

_OFFSET = 3


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """Keep the values, with the order of dimensions in memory reversed."""
    order = list(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def _sliced(tensor: torch.Tensor) -> torch.Tensor:
    """Keep the values, at every second place of a last dimension twice as long."""
    if tensor.dim() == 0:
        return tensor
    wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]))
    wide[..., ::2] = tensor
    return wide[..., ::2]


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    """Repeat the first slice along the first dimension that has several, with stride zero."""
    for dim, size in enumerate(tensor.shape):
        if size > 1:
            return tensor.narrow(dim, 0, 1).expand(tensor.shape)
    return tensor


def _offset(tensor: torch.Tensor) -> torch.Tensor:
    """Keep the values, some elements into a larger storage."""
    room = tensor.new_zeros(tensor.numel() + 2 * _OFFSET)
    inner = room[_OFFSET : _OFFSET + tensor.numel()].view(tensor.shape)
    inner.copy_(tensor)
    return inner


def _zero_first(tensor: torch.Tensor) -> torch.Tensor:
    """Leave nothing along the first dimension."""
    return tensor.narrow(0, 0, 0) if tensor.dim() else tensor


def _zero_last(tensor: torch.Tensor) -> torch.Tensor:
    """Leave nothing along the last dimension."""
    return tensor.narrow(-1, 0, 0) if tensor.dim() else tensor


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": _transposed,
    "sliced": _sliced,
    "expanded": _expanded,
    "offset": _offset,
    "zero_first": _zero_first,
    "zero_last": _zero_last,
}


def relayout(sample: SampleInput, layout: str) -> SampleInput | None:
    """Return `sample` with every strided tensor rewritten, or None if nothing changed.

    Args:
        sample: Arguments on CPU.
        layout: A key of `LAYOUTS`.
    """
    rewrite = LAYOUTS[layout]
    changed = False

    def leaf(value: object) -> object:
        nonlocal changed
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_nested:
            return value
        source = value.detach()
        target = rewrite(source)
        changed = changed or (target.shape, target.stride(), target.storage_offset()) != (
            source.shape,
            source.stride(),
            source.storage_offset(),
        )
        return target.requires_grad_(value.requires_grad)

    rewritten = SampleInput(
        map_leaves(leaf, sample.input),
        args=map_leaves(leaf, sample.args),
        kwargs=map_leaves(leaf, sample.kwargs),
    )
    return rewritten if changed else None
