"""What stands in for the lines of torch and safetensors that `patches` changes.

Those of the compilers are in `compiler_replacements`. Each function takes the original and returns
its replacement.
"""

import functools
import itertools
import sys
import threading
import warnings
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.reduction import ForkingPickler
from types import FrameType
from typing import Any

import torch
import torch.multiprocessing.reductions
from torch.overrides import has_torch_function_unary

from torchneuron import _C
from torchneuron.device.amp import DEFAULT_AUTOCAST_DTYPE

_FEED = Queue._feed.__code__  # type: ignore[attr-defined]


def dlpack_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return kDLExtDev and the index for neuron tensors."""

    @functools.wraps(original)
    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:  # noqa: N807
        if not has_torch_function_unary(self) and self.device.type == "neuron":
            from torch.utils.dlpack import DLDeviceType

            return DLDeviceType.kDLExtDev, self.device.index
        return original(self)

    return __dlpack_device__


def dlpack(original: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse to hand neuron memory to anybody but torch.from_dlpack."""

    @functools.wraps(original)
    def __dlpack__(self: torch.Tensor, **kwargs: Any) -> Any:  # noqa: N807
        foreign = (
            self.device.type == "neuron"
            and kwargs.get("dl_device") is None
            and sys._getframe(1).f_globals.get("__name__") != "torch.utils.dlpack"
        )
        if foreign and not has_torch_function_unary(self):
            raise BufferError(
                f"cannot hand memory of {self.device} to another library: only "
                "torch.from_dlpack knows the device\n\nhint: pass `tensor.cpu()`"
            )
        return original(self, **kwargs)

    return __dlpack__


def validate_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let neuron tensors pass."""

    @functools.wraps(original)
    def validate(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "neuron":
            original(query, key, value)

    return validate


def grad_scaler_defaults(original: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make neuron the default device."""
    return ("neuron", *original[1:])


def run_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    """Prepare the calling thread, then run backward in it."""

    @functools.wraps(original)
    def _engine_run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not _thread.is_ready_for_backward:
            _prepare_backward()
        return original(t_outputs, *args, **kwargs)

    return _engine_run_backward


class _Thread(threading.local):
    """Remember of each thread what was done for it: asking costs a small backward too much."""

    is_ready_for_backward = False
    has_autocast_dtype = False


_thread = _Thread()


def _prepare_backward() -> None:
    # In a program that has not used the device there is nothing to prepare for.
    if _C.is_configured():
        _C.enter_thread()
        _prepare_autocast()
        _thread.is_ready_for_backward = True


def _prepare_autocast() -> None:
    """Give this thread our default autocast dtype, once, and leave later choices alone.

    Backward does it too: torch restores the dtype when backward ends, also one that was set by an
    autocast inside (torch.utils.checkpoint enters one).
    """
    if not _thread.has_autocast_dtype:
        _thread.has_autocast_dtype = True
        if torch.get_autocast_dtype("neuron") is torch.float16:
            torch.set_autocast_dtype("neuron", DEFAULT_AUTOCAST_DTYPE)


def autocast_init(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give each thread bfloat16 as the default for neuron."""
    _prepare_autocast()

    @functools.wraps(original)
    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if device_type == "neuron":
            _prepare_autocast()
        original(self, device_type, *args, **kwargs)

    return __init__


def formatter_init(original: Callable[..., Any]) -> Callable[..., Any]:
    """Work out column widths on the CPU."""

    @functools.wraps(original)
    def __init__(self: Any, tensor: torch.Tensor) -> None:  # noqa: N807
        original(self, tensor.cpu() if tensor.device.type == "neuron" else tensor)

    return __init__


def step_over_sparse(original: Callable[..., Any]) -> Callable[..., Any]:
    """Take sparse gradients one by one where nothing else was asked for, without grouping first."""

    @functools.wraps(original)
    def step(params: list[torch.Tensor], *args: Any, **kwargs: Any) -> None:
        if (
            kwargs.get("has_sparse_grad")
            and kwargs.get("foreach") is None
            and kwargs.get("fused") is None
            and params[0].device.type == "neuron"
        ):
            kwargs["foreach"] = False
        original(params, *args, **kwargs)

    return step


def warned_already(original: bool) -> bool:
    """Make torch believe that it has warned."""
    return True


def share_storage(original: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse to send neuron memory to another process, and say what to send."""

    @functools.wraps(original)
    def share(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == "neuron":
            _refuse_storage(str(self.device))
        return original(self, *args, **kwargs)

    return share


def reduce_storage(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let the receiver of a queue hear that neuron memory cannot be sent.

    What a queue's own thread raises is printed there and nothing is sent, so the receiver, such as
    a loop over a DataLoader, would wait for ever.
    """

    @functools.wraps(original)
    def reduce(storage: Any) -> Any:
        if storage.device.type == "neuron":
            if _in_feeder_of_queue():
                return _refuse_storage, (str(storage.device),)
            _refuse_storage(str(storage.device))
        return original(storage)

    # torch registers the function itself; through its name the change can be taken back.
    ForkingPickler.register(torch.UntypedStorage, _reduce_by_name)
    return reduce


def _reduce_by_name(storage: Any) -> Any:
    return torch.multiprocessing.reductions.reduce_storage(storage)


def _in_feeder_of_queue() -> bool:
    """Whether the caller pickles for a queue that only prints what fails, as the plain one does."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _FEED:
        frame = frame.f_back
    return frame is not None and frame.f_locals.get("onerror") is Queue._on_queue_feeder_error  # type: ignore[attr-defined]


def _refuse_storage(device: str) -> None:
    raise RuntimeError(
        f"cannot send memory of {device} to another process: each process has its own devices\n\n"
        'hint: send `tensor.cpu()` and move it there with `.to("neuron")`'
    )


def data_parallel_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Name no device to split over, as on a machine without one."""

    @functools.wraps(original)
    def _get_available_device_type() -> str | None:
        found = original()
        return None if found == "neuron" else found

    return _get_available_device_type


def data_parallel(original: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse modules on the device; for `DataParallel.forward` and for the function."""

    @functools.wraps(original)
    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        for tensor in itertools.chain(module.parameters(), module.buffers()):
            if tensor.device.type == "neuron":
                raise RuntimeError(
                    f"DataParallel cannot split a batch over neuron devices; the module is on "
                    f"{tensor.device}\n\nhint: call the module itself, or run a process per device "
                    "with torch.nn.parallel.DistributedDataParallel"
                )
        return original(module, *args, **kwargs)

    return call


def profile_init(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let the older profiler profile the host, where all work of the device is done."""

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, use_device: str | None = None, **kwargs: Any) -> None:  # noqa: N807
        if use_device == "neuron" and not kwargs.get("use_kineto"):  # torch.profiler sets that
            warnings.warn(
                "the profiler has no timer of its own for neuron: the CPU's times are the "
                "device's\n\nhint: leave out `use_device`",
                stacklevel=2,
            )
            use_device = None
        original(self, *args, use_device=use_device, **kwargs)

    return __init__


def safe_open(original: Any) -> Any:
    """Turn a neuron device into its index."""

    @functools.wraps(original, updated=())
    def safe_open(filename: Any, framework: Any, device: Any = "cpu", **kwargs: Any) -> Any:
        # It knows a closed list of device strings, and takes an accelerator's index.
        if isinstance(device, str | torch.device) and torch.device(device).type == "neuron":
            index = torch.device(device).index
            device = _C.current_device() if index is None else index
        return original(filename, framework, device, **kwargs)

    return safe_open
