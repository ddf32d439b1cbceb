"""Compiled programs on the device: how they are launched, and the kernels that they call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchneuron import _C

Launch = Callable[[int, Sequence[torch.Tensor]], list[torch.Tensor]]


def launcher(
    import_buffer: Callable[[Any], Any],
    execute: Callable[[list[Any]], list[Any]],
    export_array: Callable[[Any, None], Any],
    num_inputs: int,
    num_bytes: int,
) -> Launch:
    """Return what runs a program on tensors of a device and gives its outputs the device's memory.

    Inputs that are not row-major are copied before.

    Args:
        import_buffer: Makes a buffer of a DLPack capsule. The capsule owns nothing: the buffer is
            kept and used again for whatever tensor lies at the same address in a later launch.
        execute: Runs the program on buffers and returns its outputs as arrays.
        export_array: Makes a DLPack capsule, which owns the memory, of an array (and None).
        num_inputs: Of the program.
        num_bytes: What the program uses while it runs, outputs included; counted meanwhile.

    Returns:
        A function of the device index and the inputs. It raises `torch.OutOfMemoryError` where the
        program exceeds the core's memory, which is then not started.
    """
    return _C.Launch(import_buffer, execute, export_array, num_inputs, num_bytes)


def host_calls() -> list[tuple[str, Any]]:
    """Return name and capsule of each kernel that programs may call on the host."""
    return _C.host_calls()
