"""Streams and events of `torch.neuron`.

The emulated device is synchronous: work is done when a call returns, in program order on every
stream. Streams are therefore identities and events are points in time; both behave as
torch/cuda/streams.py describes, and misuse raises what it raises there.
"""

import functools
from types import TracebackType
from typing import Any

import torch

from torchneuron.device.index import DeviceLike, device_index
from torchneuron.errors import ArgumentError

_DEVICE_TYPE: int = torch._C._autograd.DeviceType.PrivateUse1.value


class Stream(torch.Stream):
    """Queue of work on one device; here an identity, since nothing is asynchronous.

    Args:
        device: Device of the stream, the current one if left out.
        priority: Accepted and without effect.
        stream_id: With `device_index` and `device_type`: name an existing stream.

    Raises:
        DeviceIndexError: There is no such device.

    Source: torch/cuda/streams.py; vendor's distributed guide. Stability: S.
    """

    def __new__(
        cls,
        device: DeviceLike = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,
    ) -> "Stream":
        """Create a stream, or name the one that the three ids describe."""
        if stream_id is not None:
            index = _index_of(device) if device_index is None else device_index
            kind = _DEVICE_TYPE if device_type is None else device_type
            return super().__new__(
                cls, stream_id=stream_id, device_index=index, device_type=kind, priority=priority
            )
        return super().__new__(cls, torch.device("neuron", _index_of(device)), priority=priority)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain `torch.Stream`, so that no file names this package."""
        return (functools.partial(torch.Stream, **_ids(self)), ())

    def __copy__(self) -> "Stream":
        """Return the stream itself: it is an identity."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Stream":
        """Return the stream itself: it is an identity."""
        return self

    def __repr__(self) -> str:
        """Return the device and the id."""
        return f"torch.neuron.Stream(device={self.device}, stream_id={self.stream_id})"


class _EventType(type):
    """Make events with the parameters of `torch.cuda.Event` that are plain `torch.Event`s.

    torch compares the exact type when it measures the time between two events
    (torch/csrc/Event.cpp), so an event cannot be an object of a subclass.
    """

    def __call__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        if interprocess:
            raise ArgumentError(
                "`interprocess=True` is not available: a neuron event belongs to its process",
                hint="synchronise processes with `torch.distributed`",
            )
        return torch.Event(torch.device("neuron"), enable_timing=enable_timing, blocking=blocking)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "neuron"


class Event(metaclass=_EventType):
    """Point in the work of a stream, which can be waited for and timed; a `torch.Event`.

    Args:
        enable_timing: Whether `elapsed_time` may be asked.
        blocking: Accepted and without effect.
        interprocess: Must be false: an event belongs to its process.

    Raises:
        ArgumentError: `interprocess` is true.

    Source: torch/cuda/streams.py. Stability: S.
    """


class StreamContext:
    """Make a stream current inside a `with` block; see `stream`."""

    def __init__(self, stream: torch.Stream | None) -> None:
        """Keep the stream; nothing changes before the block is entered."""
        self.stream = _checked(stream)
        self._displaced: list[tuple[Stream, Stream]] = []

    def __enter__(self) -> None:
        """Switch to the stream and to its device."""
        if self.stream is not None:
            self._displaced.append((current_stream(), current_stream(self.stream.device)))
            set_stream(self.stream)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put back what was current on the stream's device, then on the device before."""
        if self.stream is not None:
            if not self._displaced:
                raise ArgumentError(
                    f"a block of the stream {self.stream} was left that is not open",
                    hint="write `with torch.neuron.stream(...):` around the code",
                )
            before, on_device = self._displaced.pop()
            set_stream(on_device)
            set_stream(before)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Make a stream current inside a `with` block.

    Args:
        stream: The stream; `None` changes nothing.

    Raises:
        ArgumentError: It is no stream of a neuron device.

    Source: torch/cuda/__init__.py; vendor's distributed guide. Stability: S.
    """
    return StreamContext(stream)


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream current, and its device with it.

    Args:
        stream: The stream; `None` changes nothing.

    Raises:
        ArgumentError: It is no stream of a neuron device.

    Source: torch/cuda/__init__.py. Stability: S.
    """
    stream = _checked(stream)
    if stream is not None:
        torch.accelerator.set_stream(stream)


def current_stream(device: DeviceLike = None) -> Stream:
    """Return the current stream of a device, the current device if left out.

    Raises:
        DeviceIndexError: There is no such device.

    Source: torch/cuda/__init__.py. Stability: S.
    """
    return Stream(**_ids(torch.accelerator.current_stream(device_index(device))))


def default_stream(device: DeviceLike = None) -> Stream:
    """Return the stream that a device starts with.

    Raises:
        DeviceIndexError: There is no such device.

    Source: torch/cuda/__init__.py. Stability: S.
    """
    return Stream(stream_id=0, device_index=device_index(device), device_type=_DEVICE_TYPE)


def _checked(stream: torch.Stream | None) -> torch.Stream | None:
    """Return the stream, or refuse what is none of the device's."""
    if stream is None or (isinstance(stream, torch.Stream) and stream.device.type == "neuron"):
        return stream
    raise ArgumentError(
        f"expected a stream of a neuron device, got `{stream!r}` ({type(stream).__name__})",
        hint="make one with `torch.neuron.Stream()`, or pass None to change nothing",
    )


def _index_of(device: DeviceLike) -> int:
    """Read a device where a parameter called `device_index` hides the function."""
    return device_index(device)


def _ids(stream: torch.Stream) -> dict[str, int]:
    return {
        "stream_id": stream.stream_id,
        "device_index": stream.device_index,
        "device_type": stream.device_type,
    }
