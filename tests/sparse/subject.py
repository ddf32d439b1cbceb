"""Sparse tensors to test with, and how they are compared."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from behaviour.subject import DEVICE, ERRORS, FIRST
from conformance.compare import difference
from conformance.placement import CPU, members, with_members
from conformance.upstream import SPARSE_LAYOUTS

LAYOUTS = list(SPARSE_LAYOUTS.values())
COMPRESSED = LAYOUTS[1:]
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
NEURON = torch.device(FIRST)


def dense(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a CPU tensor of which about half is zero."""
    values = torch.randn(sizes or (4, 6)).mul(8).round().div(8)
    return values.relu().to(dtype)


def sparse(layout: torch.layout, source: torch.Tensor | None = None) -> torch.Tensor:
    """Return a CPU tensor of a layout, in blocks of two by two where it has blocks."""
    source = dense() if source is None else source
    blocks = {"blocksize": (2, 2)} if layout in BLOCKED else {}
    return source.to_sparse(layout=layout, **blocks)


def placed(tensor: torch.Tensor, device: str = DEVICE) -> torch.Tensor:
    """Build the same tensor from members on the device, which keep strides and gaps."""
    target = with_members(tensor, [member.detach().to(device) for member in members(tensor)])
    return target.requires_grad_(tensor.requires_grad)


def assert_equal(actual: Any, expected: Any, device: torch.device = NEURON) -> None:
    """Check that a tree of device results equals the CPU's: bits, layout, members, flags."""
    found = difference(expected, actual, device, exact=True)
    assert found is None, found.text


def assert_same(fn: Callable[..., Any], *tensors: torch.Tensor) -> None:
    """Run `fn` on copies on the CPU and on the device; compare results and what became of them."""
    assert assert_agree(fn, *tensors), "the CPU refuses this"


def assert_agree(fn: Callable[..., Any], *tensors: torch.Tensor) -> bool:
    """Do as `assert_same`; where the CPU raises, the device has to raise the same class."""

    def copies(device: str) -> list[torch.Tensor]:
        moved = [tensor.detach().clone().to(device) for tensor in tensors]
        return [
            copy.requires_grad_(tensor.requires_grad)
            for copy, tensor in zip(moved, tensors, strict=True)
        ]

    here, there = copies("cpu"), copies(DEVICE)
    try:
        expected = fn(*here)
    except ERRORS as error:
        with pytest.raises(type(error)):
            fn(*there)
        return False
    assert_equal(fn(*there), expected)
    assert_equal(there, here)
    return True


__all__ = [
    "BLOCKED", "COMPRESSED", "CPU", "LAYOUTS", "NEURON", "assert_agree", "assert_equal",
    "assert_same", "dense", "members", "placed", "sparse",
]  # fmt: skip
