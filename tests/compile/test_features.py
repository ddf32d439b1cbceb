"""Control flow, hooks, compiled modules and optimizers, checkpointing: compiled equals eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import scan, while_loop
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import torchneuron

DEVICE = "neuron"


def branches(x: Tensor) -> Tensor:
    """Take one of two ways by the data."""
    return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,)) + 1


def loop(x: Tensor) -> Any:
    """Double three times."""
    start = torch.zeros((), dtype=torch.int64, device=x.device)
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (start, x))


def running(x: Tensor) -> Any:
    """Carry a sum along the rows."""
    return scan(lambda c, row: (c + row, c * row), torch.zeros_like(x[0]), x)


def causal(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Hide later keys."""
    return torch.where(i >= j, score, -float("inf"))


def flex(x: Tensor) -> Tensor:
    """Attend with a function of the user's."""
    heads = x.reshape(1, 2, -1, 4)
    return flex_attention(heads * 2, heads, heads, score_mod=causal)


def plain(x: Tensor) -> Tensor:
    """Compute what `flex` does, in a form that has a gradient on the CPU."""
    heads = x.reshape(1, 2, -1, 4)
    return functional.scaled_dot_product_attention(heads * 2, heads, heads, is_causal=True)


def outcome(function: Callable[..., Any], x: Tensor, grad: bool) -> list[Tensor]:
    """Return results, and the gradient of what is float among them, on the CPU."""
    x = x.clone().requires_grad_(grad)
    results = pytree.tree_leaves(function(x))
    if grad:
        sum(each.square().sum() for each in results if each.is_floating_point()).backward()
        results.append(x.grad)
    return [each.detach().cpu() for each in results]


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize(
    ("function", "grad"),  # PyTorch's while_loop has no gradient
    [
        (loop, False),
        *((each, grad) for each in (branches, running, flex) for grad in (False, True)),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_higher_order_operators(function: Callable[..., Any], grad: bool, sign: int) -> None:
    x = sign * (torch.rand(6, 8) + 0.1)
    compiled = torch.compile(function, backend=DEVICE, fullgraph=True)
    with torchneuron.explain() as report:
        made = outcome(compiled, x.to(DEVICE), grad)
    expected = outcome(plain if function is flex else function, x, grad)
    torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-4)
    assert report.to_dict()["host_fallbacks"], "control flow runs eagerly, and is counted"


def test_control_flow_is_refused_where_fallbacks_are() -> None:
    compiled = torch.compile(branches, backend=DEVICE, options={"fallback_execution": False})
    with pytest.raises(Exception, match="cond .*runs eagerly"):
        compiled(torch.ones(3, device=DEVICE))


class Net(nn.Module):
    """Two layers, the first one under a checkpoint if asked for."""

    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, 8) to (N, 4)."""
        if self.recompute:
            hidden: Any = checkpoint(self.first, x, use_reentrant=False)
        else:
            hidden = self.first(x)
        return self.second(functional.gelu(hidden))


def trained(model: nn.Module, call: Callable[..., Tensor], steps: int = 3) -> list[Tensor]:
    """Train on the device; return the parameters on the CPU."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = torch.linspace(-1, 1, 40).reshape(5, 8).to(next(model.parameters()).device)
    for _ in range(steps):
        optimizer.zero_grad()
        call(x).square().mean().backward()
        optimizer.step()
    return [each.detach().cpu() for each in model.parameters()]


@pytest.mark.parametrize("recompute", [False, True])
def test_checkpointed_training(recompute: bool) -> None:
    model = Net(recompute)
    other = copy.deepcopy(model).to(DEVICE)
    made = trained(other, torch.compile(other, backend=DEVICE))
    torch.testing.assert_close(made, trained(model, model), atol=1e-5, rtol=1e-4)


def test_a_module_compiles_itself_in_place() -> None:
    model = Net()
    other = copy.deepcopy(model).to(DEVICE)
    other.compile(backend=DEVICE)
    with torchneuron.explain() as report:
        made = trained(other, other)
    torch.testing.assert_close(made, trained(model, model), atol=1e-5, rtol=1e-4)
    assert len(report.to_dict()["compiles"] + report.to_dict()["cache_hits"]) == 2
    assert list(other.state_dict()) == list(model.state_dict())


def hooked(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
    """Run with a hook of each kind; return what they saw, and the gradient they made."""
    seen: list[Tensor] = []

    def after(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return output * 2

    handles = [
        model.first.register_forward_hook(after),
        model.first.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
        model.second.register_full_backward_hook(
            lambda module, grads_in, grads_out: seen.append(grads_out[0].detach().cpu())
        ),
    ]
    x = torch.linspace(-1, 1, 40).reshape(5, 8).to(next(model.parameters()).device)
    x.requires_grad_()
    x.register_hook(lambda grad: grad * 3)
    call(x).square().mean().backward()
    for handle in handles:
        handle.remove()
    return [*seen, x.grad.detach().cpu()]


def test_hooks_of_modules_and_tensors() -> None:
    model = Net()
    other = copy.deepcopy(model).to(DEVICE)
    made = hooked(other, torch.compile(other, backend=DEVICE))
    torch.testing.assert_close(made, hooked(model, model), atol=1e-5, rtol=1e-4)


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9},
    "Adam": {},
    "AdamW": {},
    "Adagrad": {},
    "RMSprop": {},
    "Lion": {},
}


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if hasattr(torch.optim, name)])
def test_compiled_optimizers(name: str) -> None:
    parameters = [torch.randn(4, 3), torch.randn(5)]
    results = []
    for device in ("cpu", DEVICE):
        own = [each.clone().to(device).requires_grad_() for each in parameters]
        optimizer = getattr(torch.optim, name)(own, lr=torch.tensor(0.1), **OPTIMIZERS[name])
        step = optimizer.step if device == "cpu" else torch.compile(optimizer.step, backend=DEVICE)
        for number in range(3):
            for each in own:
                each.grad = torch.full_like(each, 0.5 + number)
            step()
        results.append([each.detach().cpu() for each in own])
    torch.testing.assert_close(results[1], results[0], atol=1e-5, rtol=1e-4)
