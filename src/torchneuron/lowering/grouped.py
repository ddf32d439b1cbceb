"""Products of groups of rows with a matrix per group, as mixtures of experts have them.

How many rows a group has only the data knows, and a program has fixed sizes. So the rows are laid
out in tiles of a fixed height, each of one group, the last tile of a group filled with zeros: at
most one tile more per group than full ones, whatever the groups are. Every tile is then multiplied
with its group's matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload


class _Tiles:
    """Know for each tile its group and for each row its place, of `offs`, where groups end."""

    def __init__(self, num_rows: int, offs: Tensor) -> None:
        num_groups = offs.shape[0]
        self.height = max(1, -(-num_rows // max(1, num_groups)))
        self.count = -(-num_rows // self.height) + num_groups
        # The last group may end early: what comes behind it belongs to none.
        self.ends = offs.to(torch.int64).clamp(max=num_rows)
        self.starts = torch.cat([torch.zeros_like(self.ends[:1]), self.ends[:-1]])
        used = (self.ends - self.starts + self.height - 1) // self.height
        self.tile_ends = used.cumsum(0)
        self.tile_starts = self.tile_ends - used
        numbers = torch.arange(self.count, device=offs.device)
        self.group = self._count_ended(self.tile_ends, numbers).clamp(max=num_groups - 1)
        inside = torch.arange(self.height, device=offs.device)
        first = self.starts[self.group] + (numbers - self.tile_starts[self.group]) * self.height
        self.source = first[:, None] + inside
        self.is_used = (self.source < self.ends[self.group][:, None]) & (
            numbers < self.tile_ends[-1]
        )[:, None]
        self.source = self.source.clamp(max=max(0, num_rows - 1))
        rows = torch.arange(num_rows, device=offs.device)
        group = self._count_ended(self.ends, rows)
        self.is_grouped = group < num_groups
        group = group.clamp(max=num_groups - 1)
        self.place = self.tile_starts[group] * self.height + rows - self.starts[group]

    @staticmethod
    def _count_ended(ends: Tensor, numbers: Tensor) -> Tensor:
        return (ends[None, :] <= numbers[:, None]).sum(1)

    def cut(self, rows: Tensor) -> Tensor:
        """Lay rows (S, K) out as tiles (T, height, K), zeros where a tile is not full."""
        return torch.where(self.is_used[:, :, None], rows[self.source], 0)

    def join(self, tiles: Tensor) -> Tensor:
        """Take tiles (T, height, N) back to rows (S, N); rows of no group are zero."""
        flat = tiles.flatten(0, 1)
        place = self.place.clamp(max=flat.shape[0] - 1)
        return torch.where(self.is_grouped[:, None], flat[place], 0)

    def sum_by_group(self, tiles: Tensor, num_groups: int) -> Tensor:
        """Add up the tiles (T, K, N) of each group (G, K, N)."""
        made = tiles.new_zeros((num_groups, *tiles.shape[1:]))
        return made.index_add(0, self.group, tiles)


def rows_by_group(rows: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """Multiply (S, K) by (G, K, N), each row with its group's matrix."""
    if not rows.numel() or not weight.numel() or not offs.numel():
        return rows.new_zeros((rows.shape[0], weight.shape[2]))
    tiles = _Tiles(rows.shape[0], offs)
    return tiles.join(torch.bmm(tiles.cut(rows), weight[tiles.group]))


def inner_by_group(left: Tensor, right: Tensor, offs: Tensor) -> Tensor:
    """Multiply (M, S) by (S, N) within each group of S: (G, M, N)."""
    if not left.numel() or not right.numel() or not offs.numel():
        return left.new_zeros((offs.shape[0], left.shape[0], right.shape[1]))
    tiles = _Tiles(left.shape[1], offs)
    # Half types are added up in float32, as one product would do it.
    products = torch.bmm(
        tiles.cut(left.transpose(0, 1)).transpose(1, 2).float(), tiles.cut(right).float()
    )
    return tiles.sum_by_group(products, offs.shape[0]).to(left.dtype)


def grouped_mm(
    left: Tensor,
    right: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Decompose `aten::_grouped_mm`; which operand is grouped is seen from the ranks."""
    if offs is None:
        made = torch.bmm(left, right)
    elif left.dim() == 2 and right.dim() == 3:
        made = rows_by_group(left, right, offs)
    elif left.dim() == 3:
        # (G, M, K) by (K, S): groups of columns are groups of rows of the transposed product.
        made = rows_by_group(right.transpose(0, 1), left.transpose(1, 2), offs).transpose(0, 1)
    else:
        made = inner_by_group(left, right, offs)
    made = made if bias is None else made + bias
    return made if out_dtype is None else made.to(out_dtype)


def _backward(
    rows: Tensor, weight: Tensor, offs: Tensor, grad_output: Tensor
) -> tuple[Tensor, Tensor]:
    grad_rows = rows_by_group(grad_output, weight.transpose(1, 2), offs)
    return grad_rows, inner_by_group(rows.transpose(0, 1), grad_output, offs)


# Operators that a library registers for what PyTorch has no call that it can compile.
_FOREIGN: dict[str, Callable[..., Any]] = {
    "transformers.grouped_mm_fallback": rows_by_group,
    "transformers.grouped_mm_fallback_backward": _backward,
}


def foreign() -> dict[OpOverload, Callable[..., Any]]:
    """Return the decompositions of other libraries' operators, of those that are loaded."""
    found = {}
    for name, rule in _FOREIGN.items():
        namespace, operator = name.split(".")
        packet = getattr(getattr(torch.ops, namespace), operator, None)
        if packet is not None:
            found[packet.default] = rule
    return found
