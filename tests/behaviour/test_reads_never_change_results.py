"""Looking at a value never changes what a training run computes."""

import random
import sys
from typing import Any

import pytest
import torch
from torch import nn

from behaviour.subject import DEVICE, assert_equal_states, state_of
from behaviour.training import make_net, train


def look(chance: random.Random, loss: torch.Tensor, net: nn.Module) -> None:
    """Read something of the run in one of the ways that programs do."""
    parameters = list(net.parameters())
    parameter = chance.choice(parameters)
    gradient = parameter.grad
    assert gradient is not None
    reads: list[Any] = [
        lambda: loss.item(),
        lambda: float(loss.detach()),
        lambda: bool(loss.detach() > 0),
        lambda: sys.stdout.write(f"{loss} {parameter} {gradient}\n"),
        lambda: f"{loss.detach():.3f} {parameter.data}",
        lambda: parameter.tolist(),
        lambda: gradient.cpu().numpy().sum(),
        lambda: parameter.detach().numpy(force=True).mean(),
        lambda: parameter.view(-1)[::2].detach().cpu(),
        lambda: torch.isfinite(gradient).all().item(),
        lambda: parameter.norm().item() + gradient.max().item(),
        lambda: torch.neuron.memory_summary(),
        lambda: torch.accelerator.synchronize(),
        lambda: {name: value.cpu() for name, value in net.state_dict().items()},
        lambda: len(list(gradient.flatten()[:3])),
        lambda: torch.neuron.get_rng_state(),
    ]
    for _ in range(chance.randrange(4)):
        chance.choice(reads)()


def trained(name: str, seed: int | None) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Train with random reads, or without any where seed is None."""
    torch.manual_seed(17)
    net = make_net(0, DEVICE)
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.01)
    chance = random.Random(seed)

    def read(_: int, loss: torch.Tensor, net: nn.Module) -> None:
        if seed is not None:
            look(chance, loss, net)

    loss = train(net, optimizer, range(15), read=read)
    return state_of(net), loss.cpu()


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_training_with_random_reads_is_bitwise_equal(name: str, capsys: Any) -> None:
    silent, silent_loss = trained(name, None)
    for seed in range(4):
        state, loss = trained(name, seed)
        assert_equal_states(state, silent)
        assert torch.equal(loss, silent_loss)
    assert "device='neuron:0'" in capsys.readouterr().out


def test_reads_inside_forward_and_backward_change_nothing() -> None:
    def gradient(reads: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        net = make_net(0, DEVICE)
        seen: list[Any] = []
        if reads:
            for layer in (net.norm, net.dropout, net.head):
                layer.register_forward_hook(lambda _, i, o: seen.append(o.sum().item()))
                layer.register_full_backward_hook(lambda _, i, o: seen.append(repr(o[0])))
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), range(3))
        assert bool(seen) == reads
        return [p.grad.cpu() for p in net.parameters() if p.grad is not None]

    for one, other in zip(gradient(True), gradient(False), strict=True):
        assert torch.equal(one, other)


def test_a_copy_on_the_host_is_no_window_into_the_device() -> None:
    x = torch.zeros(4, device=DEVICE)
    copied, array = x.cpu(), x.numpy(force=True)
    copied += 1
    array += 1
    assert x.tolist() == [0.0] * 4
    x += 5
    assert copied.tolist() == [1.0] * 4
    assert array.tolist() == [1.0] * 4
    with pytest.raises(TypeError, match="neuron"):
        x.numpy()
