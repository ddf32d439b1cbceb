"""Compare one computation on the CPU with the same computation on the device, bit for bit."""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

DEVICE = "neuron"
FIRST = "neuron:0"
SECOND = "neuron:1"
ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What PyTorch raises for arguments that an operator does not take."""


def moved(tree: Any, device: str = DEVICE) -> Any:
    """Copy every tensor and module of a tree to a device, keeping requires_grad."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.nn.Module):
            return copy.deepcopy(leaf).to(device)
        if isinstance(leaf, torch.Tensor):
            copied = leaf.detach().clone().to(device)
            return copied.requires_grad_(leaf.requires_grad)
        return leaf

    return pytree.tree_map(move, tree)


def assert_same(actual: Any, expected: Any, *, strides: bool = True) -> None:
    """Check that a tree of device results equals the tree of CPU results exactly."""
    actual_leaves, actual_spec = pytree.tree_flatten(actual)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert actual_spec == expected_spec
    for got, want in zip(actual_leaves, expected_leaves, strict=True):
        if not isinstance(want, torch.Tensor):
            assert type(got) is type(want)
            assert got == want or (got != got and want != want)
            continue
        assert got.device.type == torch.device(DEVICE).type, f"the result lies on {got.device}"
        assert got.dtype == want.dtype
        if strides:
            assert got.stride() == want.stride()
        torch.testing.assert_close(
            got.detach().cpu(), want.detach(), rtol=0, atol=0, equal_nan=True
        )


def assert_runs_the_same(fn: Callable[..., Any], *args: Any, strides: bool = True) -> Any:
    """Run fn on CPU copies and on device copies of args; return the device result."""
    expected = fn(*moved(args, "cpu"))
    actual = fn(*moved(args, DEVICE))
    assert_same(actual, expected, strides=strides)
    return actual


def with_gradients(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callable giving fn's outputs and the gradients of its arguments."""

    def run(*args: Any) -> Any:
        outputs = fn(*args)
        roots = [leaf for leaf in pytree.tree_leaves(outputs) if differentiable(leaf)]
        seeds = [ramp(root) for root in roots]
        torch.autograd.backward(roots, seeds)
        return detached(outputs), [leaf.grad for leaf in leaves_with_gradients(args)]

    return run


def differentiable(leaf: Any) -> bool:
    """Whether a leaf takes part in backward."""
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def ramp(like: torch.Tensor) -> torch.Tensor:
    """Make a gradient whose elements differ, so that a permuted gradient shows."""
    values = torch.linspace(-1, 1, like.numel(), dtype=torch.float64)
    return values.reshape(like.shape).to(like.dtype).to(like.device)


def detached(tree: Any) -> Any:
    """Detach every tensor of a tree."""
    return pytree.tree_map_only(torch.Tensor, lambda leaf: leaf.detach(), tree)


def leaves_with_gradients(args: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the leaf tensors and module parameters among args that can have gradients."""
    for leaf in pytree.tree_leaves(tuple(args)):
        if isinstance(leaf, torch.nn.Module):
            yield from (p for p in leaf.parameters() if p.requires_grad)
        elif differentiable(leaf) and leaf.is_leaf:
            yield leaf


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    """Return fn's result, or the class of the error it raised."""
    try:
        return fn(*args)
    except ERRORS as error:
        return type(error)


def state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copy a module's state to the CPU, for comparing runs on different devices."""
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}


def assert_equal_states(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Check that two module states on the CPU are bitwise equal."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype, name
        assert torch.equal(actual[name], value), f"{name} differs"
