"""Function transforms give on the device what they give on the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn import functional as F

from behaviour.subject import DEVICE, assert_runs_the_same


def loss(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Compute a smooth scalar of a weight (4, 3) and a sample (3,)."""
    return (weight @ x).tanh().square().sum()


TRANSFORMS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "grad": lambda w, x: grad(loss)(w, x[0]),
    "grad_twice": lambda w, x: grad(lambda x: grad(loss, argnums=1)(w, x).sum())(x[0]),
    "value": lambda w, x: grad_and_value(loss, argnums=(0, 1))(w, x[0]),
    "per_sample": lambda w, x: vmap(grad(loss), in_dims=(None, 0))(w, x),
    "nested_vmap": lambda w, x: vmap(vmap(torch.mul, (None, 0)), (0, None))(w, x[0].expand(5, 3)),
    "out_dims": lambda w, x: vmap(torch.sin, in_dims=1, out_dims=1)(x),
    "chunks": lambda w, x: vmap(lambda x: w @ x, chunk_size=2)(x),
    "jacrev": lambda w, x: jacrev(lambda x: (w @ x).sin())(x[0]),
    "jacfwd": lambda w, x: jacfwd(lambda x: (w @ x).sin())(x[0]),
    "hessian": lambda w, x: hessian(loss, argnums=1)(w, x[0]),
    "vjp": lambda w, x: vjp(lambda x: w @ x, x[0])[1](w[:, 0]),
    "jvp": lambda w, x: jvp(lambda x: (w @ x).exp(), (x[0],), (x[1],)),
    "linearize": lambda w, x: linearize(lambda x: (w @ x).exp(), x[0])[1](x[1]),
    "functionalize": lambda w, x: functionalize(lambda x: x.clone().mul_(2).t().add_(1))(x),
    "softmax": lambda w, x: vmap(lambda x: F.softmax(x, 0) + F.layer_norm(x, (3,)))(x),
    "batched_linalg": lambda w, x: vmap(torch.linalg.inv)(
        torch.eye(3, device=x.device) * 4 + x[:3].T @ x[:3] + x[:2, :, None] * 0
    ),
    "index": lambda w, x: vmap(lambda x, i: x[i])(x, torch.arange(5, device=x.device) % 3),
    "where": lambda w, x: vmap(lambda x: torch.where(x > 0, x, x.exp()))(x),
    "autograd_function": lambda w, x: vmap(grad(lambda x: Cube.apply(x).sum()))(x),
}


class Cube(torch.autograd.Function):
    """A function written for the transforms."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_equals_the_cpu(name: str) -> None:
    assert_runs_the_same(TRANSFORMS[name], torch.randn(4, 3), torch.randn(5, 3))


def test_a_module_is_called_with_other_parameters() -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.GroupNorm(1, 3), nn.Flatten(), nn.LazyLinear(2))
    net(torch.zeros(1, 2, 5, 5))

    def per_sample(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        parameters = {name: p.detach() for name, p in net.named_parameters()}

        def one(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: Any) -> torch.Tensor:
            return F.mse_loss(functional_call(net, parameters, (x[None],))[0], y)

        return vmap(grad(one), in_dims=(None, 0, 0))(parameters, x, y)

    assert_runs_the_same(per_sample, net, torch.randn(4, 2, 5, 5), torch.randn(4, 2))


def test_an_ensemble_runs_as_one() -> None:
    nets = [nn.Linear(3, 2) for _ in range(4)]

    def ensemble(nets: list[nn.Module], x: torch.Tensor) -> torch.Tensor:
        parameters, buffers = stack_module_state(nets)

        def call(parameters: Any, buffers: Any, x: torch.Tensor) -> torch.Tensor:
            return functional_call(nets[0], (parameters, buffers), (x,))

        return vmap(call, in_dims=(0, 0, None))(parameters, buffers, x).detach()

    assert_runs_the_same(ensemble, nets, torch.randn(5, 3))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers_under_vmap_equal_the_cpu(randomness: str) -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(2)
        sample = vmap(lambda x: F.dropout(x + torch.randn_like(x), 0.5), randomness=randomness)
        return sample(x)

    assert_runs_the_same(noisy, torch.randn(4, 6))
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(torch.rand_like)(torch.ones(3, device=DEVICE))
