"""Check one module of PyTorch's database on a device: forward, backward and its state."""

import copy
from typing import Any

import torch

from conformance.depth import MAX_SAMPLES, Depth
from conformance.judge import Scenario, judge, quiet, seed
from conformance.placement import CPU, Placement, tensors
from conformance.scenarios import cotangents
from conformance.tally import Results
from conformance.upstream import ModuleInfo, ModuleInput

_QUICK_INPUTS = 4


def check(info: ModuleInfo, device: torch.device, depth: Depth) -> Results:
    """Run every dtype, in training and in evaluation where they differ."""
    results = Results()
    modes = (True, False) if info.train_and_eval_differ else (True,)
    limit = MAX_SAMPLES if depth.full else _QUICK_INPUTS
    for dtype in sorted(info.supported_dtypes("cpu"), key=str):
        for training in modes:
            mode = "training" if training else "evaluation"
            with quiet():
                seed(CPU)
                made = info.module_inputs_func(
                    info, device="cpu", dtype=dtype, requires_grad=True, training=training
                )
            for index, given in enumerate(made[:limit]):
                label = f"{mode} input {index} {given.desc}".rstrip()
                forward = judge(_forward(info, given, dtype, training), device)
                results.tally(dtype, "forward").add(forward, label)
                if forward.accepted:
                    backward = judge(_backward(info, given, dtype, training), device)
                    results.tally(dtype, "backward").add(backward, label)
    return results


class _Program:
    """One module on one device and its forward arguments."""

    def __init__(
        self,
        info: ModuleInfo,
        given: ModuleInput,
        dtype: torch.dtype,
        training: bool,
        device: torch.device,
    ) -> None:
        self.place = Placement(device)
        constructor, forward = given.constructor_input, given.forward_input
        # Built on CPU and moved, as users do; tensors it is given are moved with it.
        args, kwargs = copy.deepcopy((constructor.args, constructor.kwargs))
        seed(device)
        self.module = info.module_cls(*args, **kwargs).to(device).to(dtype).train(training)
        self.args = self.place(tuple(forward.args))
        self.kwargs = self.place(dict(forward.kwargs))
        seed(device)

    def run(self) -> Any:
        return self.module(*self.args, **self.kwargs)


def _forward(info: ModuleInfo, given: ModuleInput, dtype: torch.dtype, training: bool) -> Scenario:
    def scenario(device: torch.device) -> Any:
        program = _Program(info, given, dtype, training, device)
        with torch.set_grad_enabled(training):
            result = program.run()
        # A state dict is an ordered dict with metadata of its own; only its entries matter.
        return {"result": result, "state": dict(program.module.state_dict())}

    return scenario


def _backward(info: ModuleInfo, given: ModuleInput, dtype: torch.dtype, training: bool) -> Scenario:
    def scenario(device: torch.device) -> Any:
        program = _Program(info, given, dtype, training, device)
        outputs = [tensor for tensor in tensors(program.run()) if tensor.requires_grad]
        if not outputs:
            raise LookupError("nothing to differentiate")
        torch.autograd.backward(outputs, cotangents(outputs, program.place))
        leaves = [
            *(tensor for tensor in tensors((program.args, program.kwargs)) if tensor.is_leaf),
            *program.module.parameters(),
        ]
        return {"gradients": [leaf.grad for leaf in leaves]}

    return scenario
