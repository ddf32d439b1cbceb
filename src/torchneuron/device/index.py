"""Turn what users pass as a device into an index, and refuse what is not there.

Every function of `torch.neuron` that takes a device goes through `device_index`, so all of them
accept the same things (`None`, an int, `"neuron:1"`, a `torch.device`) and refuse alike.
"""

from typing import TypeAlias

import torch

from torchneuron import _C
from torchneuron.device import configuration
from torchneuron.errors import ArgumentError, DeviceIndexError

DeviceLike: TypeAlias = torch.device | str | int | None


def device_index(device: DeviceLike, *, optional: bool = True) -> int:
    """Return the checked index of a neuron device.

    Args:
        device: A device in any spelling. Without an index, or `None`, the current device.
        optional: Whether the index may be left out.

    Raises:
        ArgumentError: The device is not a neuron device, or the index is missing.
        DeviceIndexError: There is no device of that index.
        ConfigError: The settings do not make sense, so there is no device at all.
    """
    index = written_index(device)
    if index is None:
        if not optional:
            raise ArgumentError(
                f"`{device}` names no device index", hint="write `neuron:0` or the number alone"
            )
        _C.configure()
        return _C.current_device()
    check(index)
    return index


def written_index(device: DeviceLike) -> int | None:
    """Return the index that a device argument spells out, None where it has none.

    Raises:
        ArgumentError: It is no device, or a device of another type.
    """
    if isinstance(device, str):
        try:
            device = torch.device(device)
        except RuntimeError as error:
            raise ArgumentError(f"`{device}` is not a device", hint="write `neuron:0`") from error
    if isinstance(device, torch.device):
        if device.type != "neuron":
            raise ArgumentError(
                f"expected a neuron device, got `{device}`",
                hint=f"use `torch.{device.type}` for `{device.type}` devices",
            )
        return device.index
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        return device
    raise ArgumentError(
        f"expected a device, got `{device!r}` ({type(device).__name__})",
        hint="pass None, an int, a string such as `neuron:0`, or a torch.device",
    )


def location_index(location: str, optional: bool = True) -> int:
    """Return the index in a storage's saved location, for torch.load (torch/serialization.py).

    A location may name a device that is not here: torch says so, and what to pass instead.

    Raises:
        ConfigError: The settings do not make sense, so there is no device at all.
    """
    _C.configure()
    index = written_index(location)
    return _C.current_device() if index is None else index


def check(index: int) -> None:
    """Refuse an index that is not visible to this process.

    Raises:
        DeviceIndexError: There is no such device.
        ConfigError: The settings do not make sense, so there is no device at all.
    """
    _C.configure()
    count = _C.device_count()
    if 0 <= index < count:
        return
    noun = "device" if count == 1 else "devices"
    raise DeviceIndexError(
        f"device neuron:{index} does not exist: {configuration.describe()} gives this process "
        f"{count} {noun}, neuron:0 to neuron:{count - 1}",
        hint="choose a larger instance with TORCHNEURON_INSTANCE, or see "
        "NEURON_RT_VISIBLE_CORES and NEURON_RT_NUM_CORES",
    )
