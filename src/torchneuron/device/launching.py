"""Tensors of the device in and out of compiled programs, and the memory these use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from torchneuron import _C


def export(tensors: Sequence[torch.Tensor]) -> list[Any]:
    """Return DLPack capsules over the tensors' memory; what is strided is copied to row-major.

    A capsule keeps the memory, not the tensor object, alive.
    """
    return _C.export_tensors(tensors)


def adopt(capsules: Sequence[Any], device: int) -> list[torch.Tensor]:
    """Return a program's outputs as tensors of a device, counted like its own memory.

    Raises:
        torch.OutOfMemoryError: They exceed the core's memory.
    """
    return _C.adopt_outputs(capsules, device)


def host_calls() -> list[tuple[str, Any]]:
    """Return name and capsule of each kernel that programs may call on the host."""
    return _C.host_calls()


@contextlib.contextmanager
def charged(device: int, num_bytes: int) -> Iterator[None]:
    """Count bytes as used while a program runs.

    Raises:
        torch.OutOfMemoryError: They exceed the core's memory; the program is not started.
    """
    charge = _C.Charge(device, num_bytes)
    try:
        yield
    finally:
        charge.release()
