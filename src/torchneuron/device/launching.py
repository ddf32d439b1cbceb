"""Compiled programs on the device: how they are launched, and the kernels that they call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from torchneuron import _C

# On the inputs of a program; gives its outputs.
Launch = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


class Runtime(NamedTuple):
    """Hold what a launch calls.

    Attributes:
        import_buffer: Makes a buffer of a DLPack capsule. The capsule owns nothing: the buffer is
            kept and used again for whatever tensor lies at the same address in a later launch.
        execute: Runs the program on buffers.
        take: Gives the outputs, as a list of arrays, of what `execute` returned and of `handlers`.
        handlers: What `take` wants.
        address: Gives the address of an array's memory, which lives as long as the array.
    """

    import_buffer: Callable[[Any], Any]
    execute: Callable[[list[Any]], Any]
    take: Callable[[Any, Any], list[Any]]
    handlers: Any
    address: Callable[[Any], int]


class Output(NamedTuple):
    """Describe an output of a program: a dense tensor, whose dimensions may lie in any order."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


def launcher(
    runtime: Runtime, device: int, num_inputs: int, outputs: Sequence[Output], num_bytes: int
) -> Launch:
    """Return what runs a program on tensors of a device and gives its outputs the device's memory.

    Inputs that are not row-major are copied before.

    Args:
        runtime: What it calls.
        device: Index of the device.
        num_inputs: Of the program.
        outputs: Of the program.
        num_bytes: What the program uses while it runs, outputs included; counted meanwhile.

    Returns:
        A function of the inputs. It raises `torch.OutOfMemoryError` where the program exceeds the
        core's memory, which is then not started.
    """
    return _C.Launch(runtime, device, num_inputs, outputs, num_bytes)


def host_calls() -> list[tuple[str, Any]]:
    """Return name and capsule of each kernel that programs may call on the host."""
    return _C.host_calls()
