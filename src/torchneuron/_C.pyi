"""The compiled extension. Only `torchneuron.device` and `torchneuron.autoload` may import it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

# Devices
def set_configure(callback: Callable[[], tuple[int, int, str]]) -> None:
    """Set what settles the configuration: (device count, HBM bytes per device, instance)."""

def is_configured() -> bool: ...
def configure() -> None:
    """Settle the configuration if that has not happened; raises what the callback raises."""

def device_count() -> int:
    """Return the number of devices, 0 where the configuration cannot be settled; never raises."""

def current_device() -> int: ...
def set_device(index: int) -> None: ...
def exchange_device(index: int) -> int: ...
def maybe_exchange_device(index: int) -> int: ...
def enter_thread() -> None:
    """Make backward run in this thread, as it does for CPU; for a thread's first neuron act."""

# Memory, in bytes
def memory_stats(device: int) -> dict[str, int]: ...
def memory_info(device: int) -> tuple[int, int]: ...
def memory_snapshot() -> list[dict[str, Any]]: ...
def empty_cache() -> None: ...
def reset_peak_memory_stats(device: int) -> None: ...
def reset_accumulated_memory_stats(device: int) -> None: ...
def set_memory_fraction(fraction: float, device: int) -> None: ...
def arena_note(device: int) -> str:
    """Return what a person should know about the device's reserved addresses, often nothing."""

def host_memory_available() -> int: ...
def set_host_memory_limit(limit_bytes: int | None) -> None:
    """Pretend that the host has this much memory left; for tests."""

def residency_test_move(tensor: torch.Tensor) -> None:
    """Pretend that a tensor's truth is in memory the host cannot address; for tests."""

def residency_test_log() -> list[str]:
    """Return and forget what was asked of such memory: `read` or `write`; for tests."""

# Compiled programs
class Launch:
    """Runs a program on tensors of a device; see `torchneuron.device.launching.launcher`."""

    def __init__(
        self,
        runtime: tuple[Any, ...],
        device: int,
        num_inputs: int,
        outputs: Sequence[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]],
        nbytes: int,
    ) -> None: ...
    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]: ...

def set_lowered(run: Callable[[str, list[Any]], list[Any] | None]) -> None:
    """Have eager operators run through `run(op, arguments)`; before the first use of the device."""

def host_calls() -> list[tuple[str, object]]:
    """Return name and capsule (`XLA_FFI_Handler*`) of the kernels that programs may call."""

# Random numbers
def default_generator(device: int) -> torch.Generator: ...
def manual_seed_all(seed: int) -> None:
    """Seed all devices, those of an unsettled configuration at first use."""

# Ledger
def executed_ops() -> dict[str, int]: ...
def clear_op_counts() -> None: ...
def counters() -> dict[str, int]: ...
def trace_start() -> None: ...
def trace_stop() -> list[dict[str, Any]]: ...
def set_library_prefixes(prefixes: Sequence[str]) -> None:
    """Set the folders whose files are not the user's, each with a slash at its end."""

def user_frame() -> tuple[str, int] | None:
    """Return file and line of the first frame that is neither ours nor a library's."""

# Strict
def set_refused(
    rows: Sequence[tuple[str, Sequence[torch.dtype]]],
    handler: Callable[[str, torch.dtype], None],
) -> None:
    """Have `handler(op, dtype)` called before an op of a row computes; "*" stands for every op."""

def set_refused_sparse(handler: Callable[[str, torch.layout], None] | None) -> None:
    """Have `handler(op, layout)` called for each sparse tensor that goes in or comes out."""
