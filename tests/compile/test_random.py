"""Random numbers of compiled graphs: eager's for the same seed, whatever is recomputed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

DEVICE = "neuron"
Fn = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.dropout(torch.relu(x @ w), 0.5)


def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return block(x, w).sin().sum()


def checkpointed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden: Any = checkpoint(block, x, w, use_reentrant=False)
    return hidden.sin().sum()


def outcome(fn: Fn) -> list[torch.Tensor]:
    """Return loss, gradients and the generator's next number, on the CPU."""
    torch.manual_seed(0)
    x, w = (torch.randn(16, 16, device=DEVICE, requires_grad=True) for _ in range(2))
    torch.manual_seed(5)
    loss = fn(x, w)
    loss.backward()
    following = torch.rand(1, device=DEVICE)
    return [each.detach().cpu() for each in (loss, x.grad, w.grad, following)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fn", [plain, checkpointed])
def test_recomputed_dropout_has_one_mask(fn: Fn, dynamic: bool) -> None:
    compiled = torch.compile(fn, backend="neuron", dynamic=dynamic)
    torch.testing.assert_close(outcome(compiled), outcome(plain))


def test_equal_draws_are_two_draws() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.rand_like(x), torch.rand_like(x), F.dropout(x), F.dropout(x)])

    x = torch.ones(32, device=DEVICE, requires_grad=True)
    torch.manual_seed(3)
    found = torch.compile(fn, backend="neuron")(x)
    torch.manual_seed(3)
    assert torch.equal(found.cpu(), fn(x).cpu())
    assert not torch.equal(found[0].cpu(), found[1].cpu())
    assert not torch.equal(found[2].cpu(), found[3].cpu())
