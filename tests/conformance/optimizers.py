"""Check one optimizer of PyTorch's database on a device: steps and the saved state."""

import io
from typing import Any

import torch

from conformance.depth import Depth
from conformance.judge import Scenario, judge, quiet, seed
from conformance.placement import CPU, Placement, map_leaves
from conformance.tally import Results
from conformance.upstream import OptimizerInfo

_STEPS = 4
_SHAPES = ((3, 4), (4, 5), (2, 2))
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.complex64)
_QUICK_DTYPES = (torch.float32, torch.bfloat16)

# Keyword arguments by name of the implementation; "default" lets the optimizer choose.
_IMPLEMENTATIONS: dict[str, dict[str, bool]] = {
    "default": {},
    "forloop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "differentiable": {"differentiable": True},
}
# Has an implementation with foreach, and still never chooses it by itself.
_NEVER_FOREACH = {"Adafactor"}

_CHOICES = {key for chosen in _IMPLEMENTATIONS.values() for key in chosen}


def check(info: OptimizerInfo, device: torch.device, depth: Depth) -> Results:
    """Run every implementation that CPU has, with each of upstream's argument sets."""
    results = Results()
    with quiet():
        given = info.optim_inputs_func(device="cpu")
    for dtype in _DTYPES if depth.full else _QUICK_DTYPES:
        if dtype.is_complex and not info.supports_complex:
            continue
        for name in _implementations(info):
            for index, one in enumerate(given):
                if one.kwargs.keys() & _CHOICES:
                    continue
                label = f"{name} input {index} {one.desc}".rstrip()
                values = not _reads_unwritten_memory(info, name, dtype, one.kwargs)
                for kind in ("step", "state_dict") if index < 2 or depth.full else ("step",):
                    scenario = _training(info, one.kwargs, name, dtype, device, kind)
                    verdict = judge(scenario, device, values=values)
                    results.tally(dtype, kind).add(verdict, label)
    return results


def _reads_unwritten_memory(
    info: OptimizerInfo, name: str, dtype: torch.dtype, kwargs: dict[str, Any]
) -> bool:
    """Say whether CPU's own kernel gives numbers that depend on what the memory held before.

    In torch 2.13.0 the fused SGD kernel for bfloat16 reads the momentum of the first step,
    which `torch/optim/sgd.py` makes with `torch.empty_like`.
    """
    momentum = float(kwargs.get("momentum", 0)) != 0
    return info.name == "SGD" and name == "fused" and dtype == torch.bfloat16 and momentum


def _implementations(info: OptimizerInfo) -> list[str]:
    names = ["default"]
    if "foreach" in info.supported_impls:
        names += ["forloop", "foreach"]
    if "fused" in info.supported_impls and "cpu" in info.supports_fused_on:
        names.append("fused")
    if "differentiable" in info.supported_impls:
        names.append("differentiable")
    return names


def _training(
    info: OptimizerInfo,
    kwargs: dict[str, Any],
    implementation: str,
    dtype: torch.dtype,
    device_under_test: torch.device,
    kind: str,
) -> Scenario:
    """Return a few steps; for "state_dict" with a saved and reloaded optimizer half-way."""
    chosen = dict(_IMPLEMENTATIONS[implementation])
    if implementation == "default" and _prefers_foreach(info, device_under_test):
        chosen = _IMPLEMENTATIONS["foreach"]

    def scenario(device: torch.device) -> Any:
        # What a default means depends on the device; CPU runs what the device would choose.
        explicit = chosen if device == CPU else _IMPLEMENTATIONS[implementation]
        place = Placement(device)
        seed(device)
        parameters = [torch.nn.Parameter(place(_draw(shape, dtype))) for shape in _SHAPES]
        options = {**place(kwargs), **explicit}
        optimizer = info.optim_cls(parameters, **options)
        for step in range(_STEPS):
            if kind == "state_dict" and step == _STEPS // 2:
                optimizer = _reload(optimizer, info, parameters, options)
            _step(info, optimizer, parameters, place)
        return {
            "parameters": [parameter.detach() for parameter in parameters],
            "state": map_leaves(_number, optimizer.state_dict()["state"]),
        }

    return scenario


def _number(value: Any) -> Any:
    """Take step counts as numbers: some optimizers keep them on CPU, fused ones do not."""
    return value.item() if isinstance(value, torch.Tensor) and value.dim() == 0 else value


def _prefers_foreach(info: OptimizerInfo, device: torch.device) -> bool:
    supported = torch.utils._foreach_utils._get_foreach_kernels_supported_devices()
    may = "foreach" in info.supported_impls and info.name not in _NEVER_FOREACH
    return may and device.type in supported


def _draw(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else None).to(dtype)


def _step(
    info: OptimizerInfo,
    optimizer: torch.optim.Optimizer,
    parameters: list[torch.nn.Parameter],
    place: Placement,
) -> None:
    gradients = [_draw(tuple(parameter.shape), parameter.dtype) for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        moved = place(gradient)
        parameter.grad = moved.to_sparse() if info.only_supports_sparse_grads else moved
    if not info.step_requires_closure:
        optimizer.step()
        return

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum((parameter.abs() ** 2).sum() for parameter in parameters)
        loss.backward()
        return loss

    optimizer.step(closure)


def _reload(
    optimizer: torch.optim.Optimizer,
    info: OptimizerInfo,
    parameters: list[torch.nn.Parameter],
    options: dict[str, Any],
) -> torch.optim.Optimizer:
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    fresh = info.optim_cls(parameters, **options)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh
