"""What a device says about itself."""

import functools
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

from torchneuron.device import configuration
from torchneuron.device.index import DeviceLike, device_index


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """Describe one device, that is one logical NeuronCore.

    Attributes:
        name: Instance family, such as `trn2`.
        chip: Name of the chip, such as `Trainium2`.
        cores: Physical NeuronCores of the chip; `cores // lnc` devices share it.
        lnc: Physical NeuronCores that make up this device.
        total_memory: Bytes of device memory.
        emulated: Whether no chip is behind it.
        runtime: What executes the work: `host`.

    Source: torch/cuda/__init__.py for the idea. Stability: S.
    """

    name: str
    chip: str
    cores: int
    lnc: int
    total_memory: int
    emulated: bool
    runtime: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a namespace with the same attributes, so that no file names this package."""
        return (functools.partial(SimpleNamespace, **asdict(self)), ())

    def __copy__(self) -> "DeviceProperties":
        """Return the object itself: it cannot change."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "DeviceProperties":
        """Return the object itself: it cannot change."""
        return self


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Return what is known about a device.

    Args:
        device: The device, the current one if left out.

    Raises:
        ConfigError: A setting does not make sense.
        DeviceIndexError: There is no such device.

    Source: torch/cuda/__init__.py. Stability: S.
    """
    device_index(device)  # all devices of an instance are alike; the index must exist
    instance = configuration.settled()
    return DeviceProperties(
        name=instance.family,
        chip=instance.chip.title,
        cores=instance.chip.physical_cores,
        lnc=instance.lnc,
        total_memory=instance.hbm_bytes_per_core,
        emulated=True,
        runtime="host",
    )


def get_device_name(device: DeviceLike = None) -> str:
    """Return the name of a device, such as `neuron trn2 (emulated)`.

    Args:
        device: The device, the current one if left out.

    Raises:
        ConfigError: A setting does not make sense.
        DeviceIndexError: There is no such device.

    Source: torch/cuda/__init__.py. Stability: S.
    """
    properties = get_device_properties(device)
    return f"neuron {properties.name}{' (emulated)' if properties.emulated else ''}"


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """Return the generation of the NeuronCore: (3, 0) on Trainium2, (4, 0) on Trainium3.

    Args:
        device: The device, the current one if left out.

    Raises:
        ConfigError: A setting does not make sense.
        DeviceIndexError: There is no such device.

    Source: torch/cuda/__init__.py for the form; AWS Neuron hardware pages for the generation.
    Stability: E.
    """
    device_index(device)
    version = configuration.settled().chip.core_version  # such as "NeuronCore-v3"
    return int(version.rpartition("v")[2]), 0
