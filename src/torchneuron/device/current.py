"""The current device: choosing it, counting devices, waiting for them.

Meanings and argument forms are those of `torch.cuda` (torch/cuda/__init__.py), so that code written
for it runs with the name changed.
"""

from types import TracebackType

import torch

from torchneuron import _C
from torchneuron.device import refusals
from torchneuron.device.index import DeviceLike, device_index, written_index
from torchneuron.errors import ArgumentError


def device_count() -> int:
    """Return the number of logical NeuronCores visible to this process.

    Returns 0, and never raises, where the settings do not make sense; the first real use of the
    device says what is wrong. Source: torch/cuda/__init__.py. Stability: S.
    """
    return _C.device_count()


def is_available() -> bool:
    """Return whether this process sees at least one neuron device.

    Never raises. Source: torch/cuda/__init__.py. Stability: S.
    """
    return _C.device_count() > 0


def is_initialized() -> bool:
    """Return whether the device has been used, so that its settings are now fixed.

    Source: torch/cuda/__init__.py. Stability: S.
    """
    return _C.is_configured()


def init() -> None:
    """Fix the settings of the device now instead of at first use.

    Raises:
        ConfigError: A setting does not make sense.

    Source: torch/cuda/__init__.py. Stability: S.
    """
    _C.configure()


def current_device() -> int:
    """Return the index of the current device of this thread.

    Raises:
        ConfigError: A setting does not make sense.

    Source: torch/cuda/__init__.py. Stability: S.
    """
    _C.configure()
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    """Make a device the current one of this thread.

    Args:
        device: Device with an index. A negative int leaves the current device as it is.

    Raises:
        ArgumentError: It is not a neuron device, or it has no index.
        DeviceIndexError: There is no such device.
        StrictError: It is not this rank's device, and strictness refuses that.

    Source: torch/cuda/__init__.py. Stability: S.
    """
    index = written_index(device)
    if index is None or index >= 0:
        checked = device_index(device, optional=False)
        refusals.check_device_index(checked)
        _C.set_device(checked)


def synchronize(device: DeviceLike = None) -> None:
    """Wait until all work given to a device is done.

    The emulated device computes before a call returns, so there is nothing to wait for.

    Args:
        device: The device, the current one if left out.

    Raises:
        DeviceIndexError: There is no such device.

    Source: torch/cuda/__init__.py; vendor's memory profiling guide. Stability: S.
    """
    torch.accelerator.synchronize(device_index(device))


class device:  # noqa: N801 (the name is torch's)
    """Make a device current inside a `with` block.

    Args:
        device: The device. `None`, a device without an index and a negative int change nothing.

    Raises:
        DeviceIndexError: There is no such device.

    Example:
        >>> with torch.neuron.device(1):
        ...     x = torch.empty(2, device="neuron")

    Source: torch/cuda/__init__.py. Stability: S.
    """

    def __init__(self, device: DeviceLike) -> None:
        """Check the device; nothing changes before the block is entered."""
        index = written_index(device)
        self.idx = -1 if index is None or index < 0 else device_index(index)
        if self.idx >= 0:
            refusals.check_device_index(self.idx)
        self._previous: list[int] = []

    def __enter__(self) -> None:
        """Switch to the device."""
        self._previous.append(_C.exchange_device(self.idx) if self.idx >= 0 else -1)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Switch back, whatever happened inside."""
        if not self._previous:
            raise ArgumentError(
                f"a block of the device neuron:{self.idx} was left that is not open",
                hint="write `with torch.neuron.device(...):` around the code",
            )
        _C.maybe_exchange_device(self._previous.pop())


class device_of(device):  # noqa: N801 (the name is torch's)
    """Make the device of a tensor or storage current inside a `with` block.

    Args:
        obj: A tensor or storage. One that is not on a neuron device changes nothing.

    Source: torch/cuda/__init__.py. Stability: S.
    """

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage | torch.TypedStorage) -> None:
        """Read the device of `obj`."""
        where = obj.device
        super().__init__(where.index if where.type == "neuron" else None)
