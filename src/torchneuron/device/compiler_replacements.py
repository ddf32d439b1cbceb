"""What stands in for the lines of Dynamo, AOTAutograd and fake tensors that `patches` changes.

Each function takes the original and returns its replacement.
"""

import collections
import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from torchneuron import _C, ledger


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
