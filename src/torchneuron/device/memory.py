"""Memory of the device: statistics, limits, snapshots.

Names, keys and the snapshot's form are those of torch/cuda/memory.py, so that code and viewers made
for them work. Statistics of a device that was not used yet are empty and read as 0: asking for
them never uses the device.
"""

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

from torchneuron import _C
from torchneuron.device.index import DeviceLike, device_index
from torchneuron.errors import ArgumentError

_ROWS = (
    ("allocated_bytes", "Allocated memory", True),
    ("active_bytes", "Active memory", True),
    ("requested_bytes", "Requested memory", True),
    ("reserved_bytes", "Reserved memory", True),
    ("inactive_split_bytes", "Non-releasable memory", True),
    ("allocation", "Allocations", False),
    ("active", "Active blocks", False),
    ("segment", "Segments", False),
    ("inactive_split", "Non-releasable blocks", False),
)
_COLUMNS = ("current", "peak", "allocated", "freed")
_TITLES = ("now", "peak", "total allocated", "total freed")


def memory_stats(device: DeviceLike = None) -> "OrderedDict[str, int]":
    """Return the allocator's statistics of a device under flat keys, sorted.

    `{allocation,segment,active,inactive_split}.{all,small_pool,large_pool}.{current,peak,allocated,
    freed}` count; the same with `{allocated,reserved,active,inactive_split,requested}_bytes` are
    bytes; `num_alloc_retries`, `num_ooms` and others are single counters.

    Args:
        device: The device, the current one if left out.

    Returns:
        The statistics, empty before the first use of the device.

    Raises:
        DeviceIndexError: There is no such device.

    Source: torch/cuda/memory.py; vendor's memory profiling guide. Stability: S.
    """
    if not _C.is_configured():
        return OrderedDict()
    return OrderedDict(sorted(_C.memory_stats(device_index(device)).items()))


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes that live tensors occupy.

    Source: torch/cuda/memory.py. Stability: S.
    """
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the most bytes that live tensors occupied since start or the last peak reset.

    Source: torch/cuda/memory.py. Stability: S.
    """
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the bytes that the caching allocator holds, used or not.

    Source: torch/cuda/memory.py. Stability: S.
    """
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Return the most bytes that the caching allocator held since start or the last peak reset.

    Source: torch/cuda/memory.py. Stability: S.
    """
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return the free and the total bytes of a device.

    Args:
        device: The device, the current one if left out.

    Returns:
        Free and total. Total is the emulated core's HBM; free is what is not reserved.

    Raises:
        ConfigError: A setting does not make sense.
        DeviceIndexError: There is no such device.

    Source: torch/cuda/memory.py. Stability: S.
    """
    return _C.memory_info(device_index(device))


def empty_cache() -> None:
    """Give back the memory that the caching allocator holds and no tensor uses.

    Source: torch/cuda/memory.py. Stability: S.
    """
    if _C.is_configured():
        _C.empty_cache()


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Let the peaks of a device start again from what is in use now.

    Source: torch/cuda/memory.py. Stability: S.
    """
    if _C.is_configured():
        _C.reset_peak_memory_stats(device_index(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Let the totals of a device (allocated, freed, retries, failures) start again from 0.

    Source: torch/cuda/memory.py. Stability: S.
    """
    if _C.is_configured():
        _C.reset_accumulated_memory_stats(device_index(device))


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limit the caching allocator to a fraction of a device's memory.

    Beyond it `torch.OutOfMemoryError` is raised.

    Args:
        fraction: From 0 to 1, of the total that `mem_get_info` returns.
        device: The device, the current one if left out.

    Raises:
        ArgumentError: The fraction is not a number from 0 to 1.
        DeviceIndexError: There is no such device.

    Source: torch/cuda/memory.py. Stability: S.
    """
    is_number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
    if not is_number or not 0 <= fraction <= 1:
        raise ArgumentError(
            f"memory fraction `{fraction!r}` is not a number from 0 to 1",
            hint="0.5 stands for half of the device's memory",
        )
    _C.set_memory_fraction(float(fraction), device_index(device))


def memory_snapshot() -> list[dict[str, Any]]:
    """Return the segments of all devices with their blocks.

    Source: torch/cuda/memory.py. Stability: S.
    """
    return _C.memory_snapshot() if _C.is_configured() else []


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """Return the statistics of a device as a table to read.

    Args:
        device: The device, the current one if left out.
        abbreviated: Whether to leave out the rows of the two pools.

    Source: torch/cuda/memory.py; vendor's memory profiling guide. Stability: S.
    """
    index = device_index(device)
    stats = memory_stats(index)
    pools = [("all", "")]
    if not abbreviated:
        pools += [("large_pool", "  large pool"), ("small_pool", "  small pool")]
    rule = "-" * 92
    lines = [
        rule,
        f"memory of neuron:{index}    out of memory: {stats['num_ooms']}    "
        f"retries: {stats['num_alloc_retries']}",
        rule,
        f"{'':<24}" + "".join(f"{title:>17}" for title in _TITLES),
    ]
    for key, title, in_bytes in _ROWS:
        lines.append(rule)
        for pool, label in pools:
            cells = (stats[f"{key}.{pool}.{column}"] for column in _COLUMNS)
            shown = "".join(f"{_size(cell) if in_bytes else cell:>17}" for cell in cells)
            lines.append(f"{label or title:<24}{shown}")
    note = _C.arena_note(index)
    return "\n".join([*lines, rule, *([note, rule] if note else []), ""])


def _size(num_bytes: int) -> str:
    """Return bytes with the unit that leaves at most four digits before the point."""
    size, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 10_000:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _snapshot(device: DeviceLike = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Return what PyTorch's memory viewer opens; segments and blocks, no history.

    Args:
        device: Accepted as in `torch.cuda`; the snapshot holds all devices.
        augment_with_fx_traces: Accepted and without effect: there are no traces to augment.

    Source: torch/cuda/memory.py. Stability: E.
    """
    return {
        "segments": memory_snapshot(),
        "device_traces": [[] for _ in range(_C.device_count())],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _dump_snapshot(
    filename: str | Path = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Write a file that the viewer at pytorch.org/memory_viz opens.

    Args:
        filename: The file; an existing one is replaced.
        augment_with_fx_traces: Accepted and without effect.

    Source: torch/cuda/memory.py. Stability: E.
    """
    Path(filename).write_bytes(pickle.dumps(_snapshot()))
