"""The few lines of torch that deny an outside device what they grant others, as one table.

Each row names what is changed, why, and where upstream says so; `replacements` and
`compiler_replacements` hold what takes its place. A row is applied only if what it changes looks as
it does in torch 2.13; otherwise it stays as it is and `rows()` says so. `undo(name)` puts the
original back. Modules that take long to import, or may be absent, are changed once somebody else
imports them. Only this file changes torch.
"""

import functools
import inspect
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from torchneuron.device import compiler_replacements, replacements
from torchneuron.device.on_import import after_import

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Patch:
    """Change one attribute of torch.

    Attributes:
        name: Short name, for `undo` and for people.
        module: Module that holds the target; waited for, never imported.
        target: Path of the attribute inside the module.
        reason: Why torch cannot stay as it is.
        upstream: File and line in torch 2.13.
        signature: Parameters that the target must have, "" for data.
        make: Builds the replacement from the original.
        state: `waiting`, `applied`, `undone`, or `skipped: why`.
    """

    name: str
    module: str
    target: str
    reason: str
    upstream: str
    signature: str
    make: Callable[[Any], Any]
    state: str = "waiting"
    original: Any = field(default=None, repr=False)
    replacement: Any = field(default=None, repr=False)


PATCHES = (
    Patch(
        "dlpack-device",
        "torch",
        "Tensor.__dlpack_device__",
        "compares with the type `privateuse1`, which no renamed device has",
        "torch/_tensor.py:1688",
        "self",
        replacements.dlpack_device,
    ),
    Patch(
        "dlpack",
        "torch",
        "Tensor.__dlpack__",
        "hands neuron memory to consumers that do not know the device; they fail unclearly",
        "torch/_tensor.py:1537",
        "self stream max_version dl_device copy",
        replacements.dlpack,
    ),
    Patch(
        "flex-attention",
        "torch.nn.attention.flex_attention",
        "_validate_device",
        "keeps a closed list of devices",
        "torch/nn/attention/flex_attention.py:2075",
        "query key value",
        replacements.validate_device,
    ),
    Patch(
        "grad-scaler",
        "torch",
        "amp.GradScaler.__init__.__defaults__",
        "`GradScaler()` means CUDA, and disables itself where there is none",
        "torch/amp/grad_scaler.py:122",
        "",
        replacements.grad_scaler_defaults,
    ),
    Patch(
        "backward",
        "torch",
        "autograd._engine_run_backward",
        "a thread's first neuron act may be a backward, before a kernel could prepare the thread",
        "torch/autograd/graph.py:966",
        "t_outputs args kwargs",
        replacements.run_backward,
    ),
    Patch(
        "backward-graph",
        "torch",
        "autograd.graph._engine_run_backward",
        "as `backward`, for callers that take the function from where it is defined",
        "torch/autograd/graph.py:966",
        "t_outputs args kwargs",
        replacements.run_backward,
    ),
    Patch(
        "autocast-dtype",
        "torch",
        "amp.autocast_mode.autocast.__init__",
        "every thread starts with float16 for outside devices; the default here is bfloat16",
        "aten/src/ATen/autocast_mode.cpp (autocast_dtype)",
        "self device_type dtype enabled cache_enabled",
        replacements.autocast_init,
    ),
    Patch(
        "print",
        "torch",
        "_tensor_str._Formatter.__init__",
        "works out column widths on the device, in float64: printing would look like work there",
        "torch/_tensor_str.py:131",
        "self tensor",
        replacements.formatter_init,
    ),
    Patch(
        "sgd-sparse",
        "torch.optim.sgd",
        "sgd",
        "groups parameters of outside devices by default, also for sparse gradients, which it then "
        "takes one by one as on the CPU",
        "torch/optim/sgd.py:252",
        "params d_p_list momentum_buffer_list has_sparse_grad foreach fused grad_scale found_inf "
        "weight_decay momentum lr dampening nesterov maximize",
        replacements.step_over_sparse,
    ),
    Patch(
        "adagrad-sparse",
        "torch.optim.adagrad",
        "adagrad",
        "as `sgd-sparse`",
        "torch/optim/adagrad.py:285",
        "params grads state_sums state_steps fused grad_scale found_inf has_sparse_grad foreach "
        "differentiable has_complex lr weight_decay lr_decay eps maximize",
        replacements.step_over_sparse,
    ),
    Patch(
        "fork-rng",
        "torch",
        "random._fork_rng_warned_already",
        "warns that saving the generators of several devices is slow; here it is not",
        "torch/random.py:221",
        "",
        replacements.warned_already,
    ),
    Patch(
        "dynamo-streams",
        "torch._dynamo.variables.streams",
        "SymbolicStreamState.__init__",
        "makes every compiled CPU function ask for the device's current stream at each call",
        "torch/_dynamo/variables/streams.py:265",
        "self",
        compiler_replacements.stream_state,
    ),
    Patch(
        "convolution-kernel",
        "torch",
        "_C._select_conv_backend",
        "tracing takes results of outside devices for row-major; the CPU's kernel decides here",
        "torch/_subclasses/fake_impls.py:1811",
        "",
        compiler_replacements.ask_cpu,
    ),
    Patch(
        "convolution-layout",
        "torch",
        "_C._conv_determine_backend_memory_format",
        "as `convolution-kernel`, for the layout that the kernel gives",
        "torch/_subclasses/fake_impls.py:1821",
        "",
        compiler_replacements.ask_cpu,
    ),
    Patch(
        "lstm-without-bias",
        "torch",
        "_meta_registrations.rnn_cell_checkSizes",
        "asks a bias for its device where there is none",
        "torch/_meta_registrations.py:7743",
        "input_gates hidden_gates input_bias hidden_bias factor prev_hidden",
        compiler_replacements.check_cell_sizes,
    ),
    Patch(
        "dynamo-sparse",
        "torch._dynamo.variables.builder",
        "VariableBuilder.wrap_tensor",
        "leaves a function with a sparse tensor to eager without a word",
        "torch/_dynamo/variables/builder.py:2859",
        "self value",
        compiler_replacements.wrap_tensor,
    ),
    Patch(
        "backward-cache",
        "torch._functorch._aot_autograd.runtime_wrappers",
        "_AutogradBackwardCompiler.get_or_compile",
        "writes graphs of outside backends to its cache only while an option says so",
        "torch/_functorch/_aot_autograd/runtime_wrappers.py:2809",
        "self saved_tensors_use_once",
        compiler_replacements.compile_backward,
    ),
    Patch(
        "compile-routing",
        "torch",
        "_TorchCompileInductorWrapper.__call__",
        "`torch.compile(model)` means Inductor, which has no code for outside devices",
        "torch/__init__.py:2485",
        "self model_ inputs_ config_patches",
        compiler_replacements.route_compile,
    ),
    Patch(
        "share-fd",
        "torch",
        "UntypedStorage._share_fd_cpu_",
        "refuses to send device memory to another process in words that name no device",
        "torch/storage.py (_share_fd_cpu_)",
        "self args kwargs",
        replacements.share_storage,
    ),
    Patch(
        "share-filename",
        "torch",
        "UntypedStorage._share_filename_cpu_",
        "as `share-fd`, for the other way of sharing",
        "torch/storage.py (_share_filename_cpu_)",
        "self args kwargs",
        replacements.share_storage,
    ),
    Patch(
        "queue",
        "torch.multiprocessing.reductions",
        "reduce_storage",
        "in a queue's thread an error is printed, and whoever reads the queue waits for ever",
        "torch/multiprocessing/reductions.py:590",
        "storage",
        replacements.reduce_storage,
    ),
    Patch(
        "data-parallel-device",
        "torch.nn.parallel.data_parallel",
        "_get_available_device_type",
        "`DataParallel` of a model on the CPU wants it on the accelerator, wherever there is one",
        "torch/nn/parallel/data_parallel.py:145",
        "",
        replacements.data_parallel_device,
    ),
    Patch(
        "data-parallel",
        "torch.nn.parallel.data_parallel",
        "DataParallel.forward",
        "splits a batch with functions of CUDA's",
        "torch/nn/parallel/data_parallel.py:172",
        "self inputs kwargs",
        replacements.data_parallel,
    ),
    Patch(
        "data-parallel-function",
        "torch",
        "nn.parallel.data_parallel",
        "as `data-parallel`, for the function",
        "torch/nn/parallel/data_parallel.py:221",
        "module inputs device_ids output_device dim module_kwargs",
        replacements.data_parallel,
    ),
    Patch(
        "profiler",
        "torch",
        "autograd.profiler.profile.__init__",
        "`use_device` needs timers that an outside device registers in C++; without them every "
        "operator prints an internal error",
        "torch/autograd/profiler.py:225",
        "self enabled use_cuda use_device record_shapes with_flops profile_memory with_stack "
        "with_modules use_kineto use_cpu experimental_config acc_events custom_trace_id_callback "
        "post_processing_timeout_s activity_filters",
        replacements.profile_init,
    ),
    Patch(
        "safetensors",
        "safetensors",
        "safe_open",
        "knows a closed list of device strings; the index of the accelerator works",
        "safetensors 0.8.0 bindings/python/src/lib.rs (Device)",
        "",
        replacements.safe_open,
    ),
)


class PatchRow(NamedTuple):
    """Show one patch: what it changes, why, where upstream says so, and what became of it."""

    name: str
    target: str
    reason: str
    upstream: str
    state: str


def apply(skip: frozenset[str] = frozenset()) -> None:
    """Apply every patch, each as soon as its module is imported.

    Args:
        skip: Names of patches to leave out.
    """
    for patch in PATCHES:
        if patch.name in skip:
            patch.state = "skipped: switched off"
        else:
            after_import(patch.module, functools.partial(_apply_one, patch))


def undo(name: str) -> None:
    """Put back what a patch replaced; does nothing if somebody replaced it again since."""
    for patch in PATCHES:
        if patch.name == name and patch.state == "applied":
            owner, attribute = _owner(sys.modules[patch.module], patch.target)
            if getattr(owner, attribute) is patch.replacement:
                setattr(owner, attribute, patch.original)
                patch.state = "undone"


def rows() -> list[PatchRow]:
    """Return what became of each patch, for `torchneuron doctor`."""
    return [
        PatchRow(
            patch.name, f"{patch.module}.{patch.target}", patch.reason, patch.upstream, patch.state
        )
        for patch in PATCHES
    ]


def _apply_one(patch: Patch, module: ModuleType) -> None:
    if patch.state == "applied":
        return
    try:
        owner, attribute = _owner(module, patch.target)
        original = getattr(owner, attribute)
        if patch.signature:
            found = " ".join(inspect.signature(original).parameters)
            if found != patch.signature:
                raise TypeError(f"it takes ({found}), not ({patch.signature})")
    except (AttributeError, TypeError, ValueError) as error:
        patch.state = f"skipped: {error}"
        _log.debug("patch %s of %s.%s %s", patch.name, patch.module, patch.target, patch.state)
        return
    patch.original, patch.replacement = original, patch.make(original)
    setattr(owner, attribute, patch.replacement)
    patch.state = "applied"


def _owner(module: ModuleType, target: str) -> tuple[Any, str]:
    """Return the object that holds the target, and the attribute's name."""
    *path, attribute = target.split(".")
    return functools.reduce(getattr, path, module), attribute
