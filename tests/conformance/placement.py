"""Copy trees of arguments to a device, keeping layouts and sharing.

`Tensor.to` gives a tensor of other strides when the source has gaps or
overlaps. Here the whole storage is copied and the tensor is rebuilt over it, so
strides, offset, conjugate and negative bits, and two arguments that share
memory, are all the same on the other device.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

CPU = torch.device("cpu")


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors inside nested tuples, lists and dicts."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from tensors(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from tensors(value)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Rebuild nested tuples, lists, dicts and slices with `function` applied to each leaf.

    A `PackedSequence` is a leaf: it can only be made with its batch sizes on CPU.
    """
    if isinstance(tree, torch.Size):
        return tree
    if isinstance(tree, PackedSequence):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_leaves(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, value) for value in tree))
    if isinstance(tree, list | tuple):
        return type(tree)([map_leaves(function, value) for value in tree])
    if isinstance(tree, slice):
        return slice(*(map_leaves(function, x) for x in (tree.start, tree.stop, tree.step)))
    return function(tree)


def members(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the dense tensors that a sparse tensor consists of."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def with_members(tensor: torch.Tensor, parts: list[torch.Tensor]) -> torch.Tensor:
    """Return a sparse tensor like `tensor` over other members, which it keeps as they are."""
    options: dict[str, Any] = {"size": tensor.shape, "check_invariants": False}
    if tensor.layout == torch.sparse_coo:
        made = torch.sparse_coo_tensor(*parts, **options)
        return made._coalesced_(tensor.is_coalesced())
    return torch.sparse_compressed_tensor(*parts, layout=tensor.layout, **options)


class Placement:
    """One copy of a program's arguments on one device.

    Args:
        device: Where CPU tensors and mentions of the CPU device go. With "cpu" the
            tree is only copied, so that both sides of a comparison are made alike.

    Attributes:
        moved: True once a tensor or a device was moved.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.moved = False
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._tensors: dict[int, torch.Tensor] = {}
        self._sources: list[Any] = []

    def __call__(self, tree: Any) -> Any:
        """Return the copy of `tree`."""
        return map_leaves(self._leaf, tree)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value) if value.device.type == "cpu" else value
        if isinstance(value, torch.device) and value.type == "cpu":
            self.moved = True
            return self.device
        if isinstance(value, str) and value == "cpu":
            self.moved = True
            return str(self.device)
        if isinstance(value, PackedSequence):
            return PackedSequence(
                self(value.data),
                value.batch_sizes.clone(),
                self(value.sorted_indices),
                self(value.unsorted_indices),
            )
        if isinstance(value, torch.Generator) and value.device.type == "cpu":
            generator = torch.Generator(self.device)
            generator.set_state(value.get_state())
            return generator
        return value

    def _tensor(self, source: torch.Tensor) -> torch.Tensor:
        self.moved = True
        if id(source) not in self._tensors:
            self._sources.append(source)  # an id is only good while its object lives
            target = self._copy(source.detach())
            if isinstance(source, torch.nn.Parameter):
                target = torch.nn.Parameter(target, requires_grad=source.requires_grad)
            self._tensors[id(source)] = target.requires_grad_(source.requires_grad)
        return self._tensors[id(source)]

    def _copy(self, source: torch.Tensor) -> torch.Tensor:
        if source.is_nested or source.is_quantized or source.is_mkldnn:
            return source.clone() if self.device == CPU else source.to(self.device)
        if source.layout != torch.strided:
            return with_members(source, [self._copy(member) for member in members(source)])
        target = torch.empty(0, dtype=source.dtype, device=self.device).set_(
            self._storage(source.untyped_storage()),
            source.storage_offset(),
            source.size(),
            source.stride(),
        )
        if source.is_conj():
            target = target.conj()
        if source.is_neg():
            target = torch._neg_view(target)
        return target.detach()

    def _storage(self, source: torch.UntypedStorage) -> torch.UntypedStorage:
        if source._cdata not in self._storages:
            self._sources.append(source)
            data = torch.empty(0, dtype=torch.uint8).set_(source)
            copy = data.clone() if self.device == CPU else data.to(self.device)
            self._storages[source._cdata] = copy.untyped_storage()
        return self._storages[source._cdata]
