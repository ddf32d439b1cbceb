"""The module `torch.neuron`: the device as PyTorch programs see it.

Names and meanings are those of `torch.cuda`, so that a program changes the device's name and
nothing else. Importing this module needs the extension; `torchneuron.autoload` registers it.
"""

from types import SimpleNamespace
from typing import Any

from torchneuron import _C
from torchneuron.device import memory, random, streams
from torchneuron.device.amp import get_amp_supported_dtype, is_bf16_supported
from torchneuron.device.current import (
    current_device,
    device,
    device_count,
    device_of,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from torchneuron.device.index import location_index
from torchneuron.device.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torchneuron.device.properties import (
    DeviceProperties,
    get_device_capability,
    get_device_name,
    get_device_properties,
)
from torchneuron.device.random import (
    _get_generator,  # noqa: F401 (for torch's own code)
    _is_in_bad_fork,  # noqa: F401 (for torch's own code)
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torchneuron.device.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

# Names that torch's own code looks for.
_lazy_init = init
_utils = SimpleNamespace(_get_device_index=location_index)

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "random",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    """Work out the attributes that depend on whether the device has been used."""
    if name == "default_generators":
        return random.default_generators()
    if name == "_initialized":  # asked by torch.utils.checkpoint before it saves random states
        return _C.is_configured()
    raise AttributeError(f"module `torch.neuron` has no attribute `{name}`")
