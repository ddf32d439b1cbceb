"""Activation checkpointing recomputes exactly what was computed before."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from behaviour.subject import DEVICE, SECOND, assert_runs_the_same, with_gradients


class Block(nn.Module):
    """Linear layer, normalization with buffers, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8, momentum=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.dropout(self.norm(self.linear(x)).relu(), 0.5, self.training)


def gradients(stack: nn.ModuleList, x: torch.Tensor, **options: Any) -> list[torch.Tensor]:
    """Run blocks, checkpointed where options are given; return the output and gradients."""
    stack.zero_grad()
    torch.manual_seed(13)
    y = x.detach().requires_grad_()
    leaf = y
    for block in stack:
        y = checkpoint(block, y, **options) if options else block(y)
    y.square().sum().backward()
    assert leaf.grad is not None
    return [y.detach(), leaf.grad, *(p.grad.clone() for p in stack.parameters())]


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("device", [DEVICE, SECOND])
def test_recomputed_gradients_are_bitwise_equal(reentrant: bool, device: str) -> None:
    stack = nn.ModuleList(Block() for _ in range(3)).to(device)
    x = torch.randn(6, 8, device=device)
    plain = gradients(stack, x)
    again = gradients(stack, x, use_reentrant=reentrant)
    assert all(torch.equal(one, other) for one, other in zip(again, plain, strict=True))


@pytest.mark.parametrize("reentrant", [True, False])
def test_without_preserved_state_dropout_differs(reentrant: bool) -> None:
    stack = nn.ModuleList([Block()]).to(DEVICE)
    x = torch.randn(60, 8, device=DEVICE)
    plain = gradients(stack, x)
    options = {"use_reentrant": reentrant, "preserve_rng_state": False}
    forgotten = gradients(stack, x, **options)
    assert torch.equal(plain[0], forgotten[0])
    assert not torch.equal(plain[1], forgotten[1])


def test_the_stream_after_backward_is_as_without_checkpoints() -> None:
    stack = nn.ModuleList([Block()]).to(DEVICE)
    x = torch.randn(6, 8, device=DEVICE)
    after = []
    for options in ({}, {"use_reentrant": True}, {"use_reentrant": False}):
        gradients(stack, x, **options)
        after.append(torch.rand(4, device=DEVICE).tolist())
    assert after[0] == after[1] == after[2]


def test_autocast_is_restored_for_the_recomputation() -> None:
    def run(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        seen = []

        def inner(x: torch.Tensor) -> torch.Tensor:
            y = net(x)
            seen.append(y.dtype)
            return y

        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            y = checkpoint(inner, x, use_reentrant=False, early_stop=False)
        y.float().sum().backward()
        assert seen == [torch.bfloat16] * 2
        return y.detach()

    assert_runs_the_same(run, nn.Linear(4, 4), torch.randn(3, 4, requires_grad=True))


def test_sequences_and_nested_checkpoints_equal_the_cpu() -> None:
    net = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)))

    def run(net: nn.Sequential, x: torch.Tensor) -> list[torch.Tensor]:
        def outer(x: torch.Tensor) -> torch.Tensor:
            return checkpoint(net[1], checkpoint(net[0], x, use_reentrant=False).sin(),
                use_reentrant=False)  # fmt: skip

        return [
            checkpoint_sequential(net, 2, x, use_reentrant=False),
            checkpoint(outer, x, use_reentrant=False),
        ]

    assert_runs_the_same(with_gradients(run), net, torch.randn(3, 4, requires_grad=True))


def test_selected_operators_are_kept() -> None:
    products = []

    def policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if op is torch.ops.aten.mm.default:
            products.append(op)
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    def run(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(
            lambda w, x: (x @ w).sin() @ w,
            w,
            x,
            use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts(policy),
        )

    w = torch.randn(4, 4, requires_grad=True)
    assert_runs_the_same(with_gradients(run), w, torch.randn(3, 4, requires_grad=True))
    assert products


def test_a_function_that_changes_its_mind_is_an_error() -> None:
    calls: list[int] = []

    def fickle(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.sin().exp() if len(calls) == 1 else x.sin()

    x = torch.randn(3, device=DEVICE, requires_grad=True)
    y = checkpoint(fickle, x, use_reentrant=False)
    with pytest.raises(CheckpointError):
        y.sum().backward()


def test_checkpoints_lower_the_peak() -> None:
    w = torch.randn(256, 256, device=DEVICE, requires_grad=True)

    def deep(x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = (x @ w).tanh()
        return x

    def peak(checkpointed: bool) -> int:
        torch.neuron.reset_peak_memory_stats()
        x = torch.randn(512, 256, device=DEVICE, requires_grad=True)
        for _ in range(4):
            x = checkpoint(deep, x, use_reentrant=False) if checkpointed else deep(x)
        x.sum().backward()
        w.grad = None
        return torch.neuron.max_memory_allocated()

    assert peak(True) < 0.75 * peak(False)
