"""What stands in for the lines of torch and safetensors that `patches` changes.

Each function takes the original and returns its replacement.
"""

import collections
import contextlib
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

from torchneuron import _C, ledger
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


def stream_state(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let Dynamo ask for the current stream only in programs that have used the device."""

    @functools.wraps(original)
    def __init__(self: Any) -> None:  # noqa: N807
        # Dynamo itself configures the device, so that is no sign of use.
        if _C.executed_ops():
            original(self)
        else:
            # As on a machine without an accelerator.
            self.cur_stream_stack = collections.deque()

    return __init__


_last_sparse: list[tuple[str, int] | None] = [None]
_said_sparse = threading.Event()


def wrap_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    """Count a function that Dynamo leaves to eager for a sparse neuron tensor; say it once."""

    @functools.wraps(original)
    def wrap(self: Any, value: torch.Tensor) -> Any:
        if value.device.type == "neuron" and value.layout != torch.strided:
            frame = self.tx.frame_summary()
            place = frame.filename, frame.lineno
            if _last_sparse[0] != place:  # Dynamo analyses a function anew after it breaks
                _last_sparse[0] = place
                ledger.emit(ledger.GraphBreak("a sparse tensor in a compiled function", *place))
            if not _said_sparse.is_set():
                _said_sparse.set()
                ledger.emit(
                    ledger.Notice(
                        "torch.compile",
                        "a function with a sparse tensor runs eagerly, as on every device, at "
                        f"{frame.filename}:{frame.lineno} (said once)",
                        "make torchneuron.sparse.matrix(tensor) outside, and multiply with "
                        "torchneuron.sparse.mm inside; torchneuron.explain() lists each",
                    )
                )
        return original(self, value)

    return wrap


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


def ask_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Answer for neuron tensors as for the CPU's, of which only the looks count."""

    @functools.wraps(original)
    def ask(*args: Any, **kwargs: Any) -> Any:
        given = {name: _on_cpu(value) for name, value in kwargs.items()}
        return original(*map(_on_cpu, args), **given)

    return ask


def _on_cpu(value: Any) -> Any:
    """Return a CPU tensor that looks like a neuron tensor; a fake one of a fake one."""
    if not isinstance(value, torch.Tensor) or value.device.type != "neuron":
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


def check_cell_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Check a recurrent cell without bias as one that has it."""

    @functools.wraps(original)
    def rnn_cell_checkSizes(  # noqa: N802
        input_gates: torch.Tensor,
        hidden_gates: torch.Tensor,
        input_bias: torch.Tensor | None,
        hidden_bias: torch.Tensor | None,
        factor: int,
        prev_hidden: torch.Tensor,
    ) -> None:
        if input_bias is None and hidden_bias is None:
            input_bias = hidden_bias = input_gates.new_empty(input_gates.shape[1])
        original(input_gates, hidden_gates, input_bias, hidden_bias, factor, prev_hidden)

    return rnn_cell_checkSizes


def compile_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    """Set the option as it was for the forward part, whose compilation is long over."""

    @functools.wraps(original)
    def get_or_compile(self: Any, *, saved_tensors_use_once: bool) -> Any:
        if self.compiled_bw is not None:  # of every backward pass but the first
            return self.compiled_bw
        made = getattr(self.bw_compiler, "output_code_ty", type(None)).__module__
        is_ours = made.startswith("torchneuron.")
        keeping = torch._functorch.config.patch(bundled_autograd_cache=True)
        with keeping if is_ours else contextlib.nullcontext():
            return original(self, saved_tensors_use_once=saved_tensors_use_once)

    return get_or_compile


CompileBackend = Callable[..., Callable[..., Any]]
_backend: Callable[[], CompileBackend] | None = None


def set_compile_backend(get: Callable[[], CompileBackend]) -> None:
    """Say what compiles graphs of this device; called by start-up, `get` at the first of them."""
    global _backend
    _backend = get


def route_compile(original: Callable[..., Any]) -> Callable[..., Any]:
    """Compile graphs that touch the device with this project's backend, others as before."""

    @functools.wraps(original)
    def __call__(  # noqa: N807
        self: Any, model_: Any, inputs_: Any, *, config_patches: dict[str, Any] | None = None
    ) -> Any:
        if _backend is None or self.compiler_name != "inductor" or not _touches(model_, inputs_):
            return original(self, model_, inputs_, config_patches=config_patches)
        return _backend()(model_, inputs_, inductor_config=self.config | (config_patches or {}))

    return __call__


def _touches(model: Any, inputs: Any) -> bool:
    """Whether an input, a parameter or a factory of a graph is on the device."""
    if any(isinstance(each, torch.Tensor) and each.device.type == "neuron" for each in inputs):
        return True
    graph = getattr(model, "graph", None)
    for node in graph.nodes if graph is not None else ():
        device = node.kwargs.get("device")
        if device is not None and torch.device(device).type == "neuron":
            return True
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor) and value.device.type == "neuron":
            return True
    return False
