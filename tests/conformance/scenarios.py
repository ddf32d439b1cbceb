"""The programs that are run on both devices for one operator and one sample."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.testing import make_tensor

from conformance.judge import Scenario, results_with_relations, seed
from conformance.placement import CPU, Placement, tensors
from conformance.upstream import OpInfo, SampleInput

# Arguments that the operator itself wants on CPU, wherever its other tensors are.
_ARGUMENTS_KEPT_ON_CPU = {"tensor_split"}

# Results are memory that nobody wrote: shapes, strides and dtypes mean something, numbers do not.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}

# The same for a batch of nothing: CPU's kernels return the scalar result before they write it.
UNINITIALISED_WHEN_EMPTY = {
    "nn.functional.multi_margin_loss",
    "nn.functional.multilabel_margin_loss",
}

# CPU gives other last bits for other addresses of its arguments, on some machines seldom.
NOT_REPEATABLE = {"linalg.lstsq"}

OUT_STYLES = ("fitting", "empty", "strided", "wrong_dtype")


class _Call:
    """One copy of a sample on one device."""

    def __init__(self, entry: OpInfo, sample: SampleInput, device: torch.device) -> None:
        place = Placement(device)
        self.input = place(sample.input)
        rest = Placement(CPU) if entry.name in _ARGUMENTS_KEPT_ON_CPU else place
        self.args = rest(tuple(sample.args))
        self.kwargs = rest(dict(sample.kwargs))
        self.place = place
        self.inputs = (self.input, self.args, self.kwargs) if rest is place else self.input
        seed(device)

    def run(self, function: Callable[..., Any], **extra: Any) -> Any:
        # A factory called without a device makes its tensor where the default says.
        default = nullcontext() if self.place.moved else self.place.device
        with default:
            return function(self.input, *self.args, **{**self.kwargs, **extra})


def forward(entry: OpInfo, sample: SampleInput) -> Scenario:
    """Call the operator; its results, its inputs afterwards and their sharing are compared."""

    def scenario(device: torch.device) -> Any:
        call = _Call(entry, sample, device)
        return results_with_relations(call.run(entry.op), call.inputs)

    return scenario


def backward(entry: OpInfo, sample: SampleInput) -> Scenario:
    """Call the operator and differentiate all results with respect to all inputs."""

    def scenario(device: torch.device) -> Any:
        call = _Call(entry, sample, device)
        result = sample.output_process_fn_grad(call.run(entry.op))
        outputs = [tensor for tensor in tensors(result) if tensor.requires_grad]
        inputs = [tensor for tensor in tensors(call.inputs) if tensor.requires_grad]
        if not outputs or not inputs:
            raise LookupError("nothing to differentiate")
        gradients = torch.autograd.grad(
            outputs, inputs, cotangents(outputs, call.place), allow_unused=True
        )
        return {"gradients": list(gradients), "outputs": len(outputs)}

    return scenario


def backward_of_sparse(entry: OpInfo, sample: SampleInput) -> Scenario:
    """Do as `backward`, for COO results through their dense form: that layout has no ones."""

    def scenario(device: torch.device) -> Any:
        call = _Call(entry, sample, device)
        result = sample.output_process_fn_grad(call.run(entry.op))
        outputs = [
            tensor.to_dense() if tensor.layout == torch.sparse_coo else tensor
            for tensor in tensors(result)
            if tensor.requires_grad
        ]
        inputs = [tensor for tensor in tensors(call.inputs) if tensor.requires_grad]
        if not outputs or not inputs:
            raise LookupError("nothing to differentiate")
        given = cotangents(outputs, call.place)
        return list(torch.autograd.grad(outputs, inputs, given, allow_unused=True))

    return scenario


def inplace(entry: OpInfo, sample: SampleInput) -> Scenario:
    """Call the in-place variant; the returned object, the input and the rest are compared."""

    def scenario(device: torch.device) -> Any:
        call = _Call(entry, sample, device)
        return results_with_relations(call.run(entry.inplace_variant), call.inputs)

    return scenario


def out(entry: OpInfo, sample: SampleInput, style: str) -> Scenario:
    """Call with `out=`; results, the given tensors and their identity are compared.

    Args:
        entry: An operator that takes `out=`.
        sample: Its arguments on CPU.
        style: A member of `OUT_STYLES`: a tensor that fits, one without elements (to be
            resized), one with gaps in memory, one of another dtype.
    """
    expected = _Call(entry, sample, CPU).run(entry.op)

    def scenario(device: torch.device) -> Any:
        call = _Call(entry, sample, device)
        targets = call.place(_out_targets(expected, style))
        result = call.run(entry.op, out=targets)
        return results_with_relations(result, (call.inputs, targets))

    return scenario


def cotangents(outputs: list[torch.Tensor], place: Placement) -> list[torch.Tensor]:
    """Return the same random gradient for each output on every device."""
    seed(CPU)
    made: list[torch.Tensor] = []
    for output in outputs:
        if output.layout != torch.strided or output.is_nested:
            made.append(torch.ones_like(output))
            continue
        cotangent = make_tensor(tuple(output.shape), dtype=output.dtype, device="cpu")
        made.append(place(cotangent) if output.device.type == place.device.type else cotangent)
    return made


def _out_targets(expected: Any, style: str) -> Any:
    if isinstance(expected, list | tuple):
        return tuple(_out_targets(item, style) for item in expected)
    if not isinstance(expected, torch.Tensor):
        raise LookupError("the result is no tensor")
    dtype = expected.dtype
    if style == "empty":
        return torch.empty(0, dtype=dtype)
    if style == "wrong_dtype":
        narrow = torch.int32 if dtype.is_floating_point or dtype.is_complex else torch.float32
        return torch.zeros(expected.shape, dtype=narrow)
    if style == "strided" and expected.dim():
        wide = torch.zeros((*expected.shape[:-1], 2 * expected.shape[-1]), dtype=dtype)
        return wide[..., ::2]
    return torch.zeros(expected.shape, dtype=dtype)
