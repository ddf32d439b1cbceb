"""Embeddings with sparse gradients, and the optimizers that take them, over several steps."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from behaviour.subject import DEVICE, ERRORS
from sparse.subject import assert_equal

STEPS = 6
ROWS, WIDTH = 40, 5

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD forloop": lambda p: torch.optim.SGD(p, lr=0.1, foreach=False),
    "SGD foreach": lambda p: torch.optim.SGD(p, lr=0.1, foreach=True),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD maximize": lambda p: torch.optim.SGD(p, lr=0.1, maximize=True),
    "SGD nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SGD weight decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
    "SGD fused": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "Adagrad forloop": lambda p: torch.optim.Adagrad(p, lr=0.1, foreach=False),
    "Adagrad foreach": lambda p: torch.optim.Adagrad(p, lr=0.1, foreach=True),
    "Adagrad decay": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.01),
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
    "SparseAdam maximize": lambda p: torch.optim.SparseAdam(p, lr=0.1, maximize=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.1),
}

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "embedding": lambda: nn.Embedding(ROWS, WIDTH, sparse=True),
    "embedding padding": lambda: nn.Embedding(ROWS, WIDTH, padding_idx=3, sparse=True),
    "embedding norm": lambda: nn.Embedding(ROWS, WIDTH, max_norm=1.0, sparse=True),
    "embedding frequency": lambda: nn.Embedding(ROWS, WIDTH, scale_grad_by_freq=True, sparse=True),
    "bag sum": lambda: nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True),
    "bag mean": lambda: nn.EmbeddingBag(ROWS, WIDTH, mode="mean", sparse=True),
    "bag max": lambda: nn.EmbeddingBag(ROWS, WIDTH, mode="max", sparse=True),
    "bag padding": lambda: nn.EmbeddingBag(ROWS, WIDTH, mode="sum", padding_idx=3, sparse=True),
    "bag norm": lambda: nn.EmbeddingBag(ROWS, WIDTH, mode="sum", max_norm=1.0, sparse=True),
}


def learned(
    layer: Callable[[], nn.Module],
    optimizer: Callable[[Any], torch.optim.Optimizer],
    device: str,
    offsets: Tensor | None = None,
) -> list[Tensor]:
    """Return loss, gradient and weight of each of a few steps."""
    torch.manual_seed(1)
    net = layer().to(device)
    optimize = optimizer(net.parameters())
    seen = []
    for _ in range(STEPS):
        rows = torch.randint(ROWS, (4, 6) if offsets is None else (24,))
        optimize.zero_grad()
        more = () if offsets is None else (offsets.to(device),)
        loss = net(rows.to(device), *more).square().sum()
        loss.backward()
        (weight,) = net.parameters()
        seen += [loss.detach(), weight.grad.clone()]
        optimize.step()
        seen.append(weight.detach().clone())
    return seen


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("layer", LAYERS)
def test_steps_equal_the_cpus(layer: str, optimizer: str) -> None:
    make, optimize = LAYERS[layer], OPTIMIZERS[optimizer]
    try:
        expected = learned(make, optimize, "cpu")
    except ERRORS as error:
        with pytest.raises(type(error)):
            learned(make, optimize, DEVICE)
        return
    assert_equal(learned(make, optimize, DEVICE), expected)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_with_offsets(mode: str, last: bool, sparse: bool) -> None:
    def layer() -> nn.Module:
        return nn.EmbeddingBag(
            ROWS, WIDTH, mode=mode, sparse=sparse, include_last_offset=last, padding_idx=2
        )

    def optimize(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    offsets = torch.tensor([0, 3, 3, 10, 24] if last else [0, 3, 3, 10])
    if mode == "max" and sparse:
        for device in ("cpu", DEVICE):
            with pytest.raises(ERRORS):
                learned(layer, optimize, device, offsets)
        return
    assert_equal(
        learned(layer, optimize, DEVICE, offsets), learned(layer, optimize, "cpu", offsets)
    )


@pytest.mark.parametrize("sparse", [True, False])
def test_weighted_bags(sparse: bool) -> None:
    def run(device: str) -> list[Any]:
        torch.manual_seed(0)
        bag = nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=sparse).to(device)
        rows = torch.randint(ROWS, (4, 6)).to(device)
        weights = torch.rand(4, 6).to(device).requires_grad_()
        out = bag(rows, per_sample_weights=weights)
        out.square().sum().backward()
        return [out.detach(), bag.weight.grad, weights.grad]

    assert_equal(run(DEVICE), run("cpu"))


def test_gradients_add_up_and_meet_dense_ones() -> None:
    def run(device: str) -> list[Any]:
        torch.manual_seed(0)
        net = nn.Embedding(ROWS, WIDTH, sparse=True).to(device)
        seen = []
        for _ in range(3):
            net(torch.randint(ROWS, (7,)).to(device)).sum().backward()
            seen.append(net.weight.grad.clone())
        (net.weight * 2).sum().backward()
        return [*seen, net.weight.grad.clone()]

    assert_equal(run(DEVICE), run("cpu"))


def test_default_steps_on_sparse_gradients_are_recorded_as_on_the_cpu() -> None:
    """One step must not list what only a grouping of dense tensors needs."""

    def learn(device: str) -> list[str]:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            learned(LAYERS["embedding"], OPTIMIZERS["Adagrad"], device)
        names = {event.name for event in profile.events()}
        return sorted(name for name in names if "foreach" in name or "coalesce" in name)

    assert learn(DEVICE) == learn("cpu")
