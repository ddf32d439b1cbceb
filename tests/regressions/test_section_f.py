"""Section F, the device API: memory, pinning, random numbers and convenience methods."""

import copy
import itertools
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from behaviour.subject import (
    DEVICE,
    FIRST,
    SECOND,
    assert_runs_the_same,
    assert_same,
    moved,
    with_gradients,
)
from behaviour.training import make_net, train

Script = Callable[..., CompletedProcess[str]]
MIB = 1024**2


def test_f01_every_accelerator_function_works() -> None:
    """gabrieldemarmiesse/torch-mojo-backend PR #472: each memory function hit an assertion."""
    accelerator = torch.accelerator
    calls: dict[str, Callable[[], Any]] = {
        "current_accelerator": lambda: accelerator.current_accelerator(True).type == DEVICE,
        "current_device_index": lambda: accelerator.current_device_index() == 0,
        "current_stream": lambda: accelerator.current_stream().device.type == DEVICE,
        "device_count": lambda: accelerator.device_count() == torch.neuron.device_count() > 1,
        "device_index": lambda: entered(accelerator.device_index(1)),
        "empty_cache": lambda: accelerator.empty_cache() is None,
        "empty_host_cache": lambda: accelerator.empty_host_cache() is None,
        "get_device_capability": lambda: (
            torch.float32 in accelerator.get_device_capability()["supported_dtypes"]
        ),
        "get_memory_info": lambda: 0 < accelerator.get_memory_info()[0],
        "is_available": accelerator.is_available,
        "max_memory_allocated": lambda: accelerator.max_memory_allocated() >= held,
        "max_memory_reserved": lambda: accelerator.max_memory_reserved() >= held,
        "memory_allocated": lambda: accelerator.memory_allocated() >= held,
        "memory_reserved": lambda: accelerator.memory_reserved() >= held,
        "memory_stats": lambda: accelerator.memory_stats()["allocated_bytes.all.current"] >= held,
        "reset_accumulated_memory_stats": lambda: (
            accelerator.reset_accumulated_memory_stats() is None
        ),
        "reset_peak_memory_stats": lambda: accelerator.reset_peak_memory_stats() is None,
        "set_device_index": lambda: accelerator.set_device_index(0) is None,
        "set_stream": lambda: accelerator.set_stream(torch.Stream(FIRST)) is None,
        "synchronize": lambda: accelerator.synchronize() is None,
    }
    old_names = {"current_device_idx", "set_device_idx"}
    assert set(accelerator.__all__) == calls.keys() | old_names | {"Graph"}
    keep = torch.ones(MIB, device=DEVICE)
    held = keep.numel() * 4
    stream = accelerator.current_stream()
    try:
        for name, call in calls.items():
            assert call(), name
    finally:
        accelerator.set_stream(stream)
    for index in (0, SECOND, torch.device(SECOND)):
        assert accelerator.memory_allocated(index) >= 0
        assert accelerator.get_memory_info(index)[1] > 0


def entered(context: Any) -> bool:
    """Enter a device context and tell whether it made device 1 current."""
    with context:
        return torch.accelerator.current_device_index() == 1


def test_f02_memory_information_adds_up(settled_memory: Callable[..., int]) -> None:
    """torch-spyre/torch-spyre #4542, #1182: wrong figures made a server missize its cache."""
    torch.neuron.empty_cache()
    free, total = torch.neuron.mem_get_info()
    assert total == torch.neuron.get_device_properties(0).total_memory
    before = settled_memory()
    big = torch.empty(64 * MIB, dtype=torch.uint8, device=DEVICE)
    assert torch.neuron.memory_allocated() - before >= 64 * MIB
    assert torch.neuron.memory_reserved() >= torch.neuron.memory_allocated()
    free_now, total_now = torch.neuron.mem_get_info()
    assert total_now == total
    assert free - free_now >= 64 * MIB
    assert free_now <= total - torch.neuron.memory_reserved()
    assert torch.accelerator.get_memory_info() == (free_now, total)
    del big
    assert torch.neuron.memory_allocated() == before
    torch.neuron.empty_cache()
    assert torch.neuron.mem_get_info()[0] >= free


def test_f04_pinning_reaches_tensors_and_storages() -> None:
    """pytorch/pytorch #99326, #99712, torch-spyre #1602: pinning did not ask the backend."""
    x = torch.arange(1000.0)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned()
    assert pinned.data_ptr() != x.data_ptr()
    assert pinned.pin_memory().data_ptr() == pinned.data_ptr()
    storage = x.untyped_storage().pin_memory()
    assert storage.is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert torch.empty_like(x, pin_memory=True).is_pinned()
    copied = pinned.to(DEVICE, non_blocking=True)
    pinned.zero_()
    assert torch.equal(copied.cpu(), x)
    back = torch.empty(1000, pin_memory=True).copy_(copied, non_blocking=True)
    torch.accelerator.synchronize()
    assert torch.equal(back, x)
    with pytest.raises(RuntimeError, match="pin"):
        copied.pin_memory()


def test_f05_generators_serve_every_sampler() -> None:
    """pytorch/pytorch #92202, DirectML #374, Fooocus #763 and others: no device generator."""
    cpu, device = torch.Generator(), torch.Generator(device=DEVICE)
    assert device.device.type == DEVICE
    x = torch.rand(5)
    samplers: list[Callable[[torch.Generator, str], torch.Tensor]] = [
        lambda g, d: torch.randn(4, generator=g, device=d),
        lambda g, d: torch.rand(4, generator=g, device=d),
        lambda g, d: torch.randint(9, (4,), generator=g, device=d),
        lambda g, d: torch.randperm(9, generator=g, device=d),
        lambda g, d: torch.bernoulli(x.to(d), generator=g),
        lambda g, d: torch.multinomial(x.to(d), 3, generator=g),
        lambda g, d: torch.normal(x.to(d), 1.0, generator=g),
        lambda g, d: torch.poisson(x.to(d) * 5, generator=g),
        lambda g, d: torch.empty(4, device=d).exponential_(generator=g),
    ]
    for seed in (0, 7, 2**63 - 1):
        cpu.manual_seed(seed)
        device.manual_seed(seed)
        assert device.initial_seed() == seed
        for sample in samplers:
            assert_same(sample(device, DEVICE), sample(cpu, "cpu"))
    state = device.get_state()
    first = torch.randn(3, generator=device, device=DEVICE)
    twin = device.clone_state()
    device.set_state(state)
    assert torch.equal(torch.randn(3, generator=device, device=DEVICE), first)
    expected = torch.randn(3, generator=device, device=DEVICE)
    assert torch.equal(torch.randn(3, generator=twin, device=DEVICE), expected)
    assert device.seed() != device.seed()
    for generator, place in ((cpu, DEVICE), (device, "cpu")):
        with pytest.raises(RuntimeError, match="[Gg]enerator"):
            torch.randn(3, generator=generator, device=place)


def test_f05_loader_shuffles_by_a_generator() -> None:
    """pytorch/pytorch #92202: a loader's order comes from the generator it is given."""
    data = torch.arange(20)
    orders = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(3)
        loader = torch.utils.data.DataLoader(data, 4, shuffle=True, generator=generator)
        orders.append([value for batch in loader for value in batch.to(DEVICE).tolist()])
    assert orders[0] == orders[1] != list(range(20))


class DropoutBlock(nn.Module):
    """A block with dropout that takes its inputs in a container."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, inputs: dict[str, Any]) -> torch.Tensor:
        x = self.linear(inputs["nested"]["x"]) * inputs["scale"]
        return F.dropout(x, 0.5, training=True)


@pytest.mark.parametrize("reentrant", [True, False])
def test_f07_recomputed_dropout_drops_the_same_elements(reentrant: bool) -> None:
    """pytorch/pytorch #127676, PR #194478: the device's random state was not restored."""

    def gradient(through: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        torch.manual_seed(21)
        result = through(lambda x: F.dropout(x * 2, 0.5).exp(), x)
        torch.rand(10, device=DEVICE)
        result.backward(torch.ones_like(result))
        assert x.grad is not None
        return x.grad

    x = torch.randn(50, device=DEVICE)
    plain = gradient(lambda fn, x: fn(x), x)
    assert 0 < int((plain == 0).sum()) < 50

    def checkpointed(fn: Any, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(fn, x, use_reentrant=reentrant)

    assert torch.equal(gradient(checkpointed, x), plain)
    assert torch.equal(gradient(checkpointed, x.to(SECOND)).cpu(), plain.cpu())


def test_f08_random_state_follows_tensors_in_containers() -> None:
    """pytorch/pytorch #121462: inputs inside containers were not looked at."""
    block = DropoutBlock().to(DEVICE)
    x = torch.randn(4, 8, device=DEVICE)

    def gradient(wrapped: bool) -> torch.Tensor:
        block.zero_grad()
        torch.manual_seed(2)
        inputs = {"nested": {"x": x}, "scale": 2.0}
        result = checkpoint(block, inputs, use_reentrant=False) if wrapped else block(inputs)
        result.square().sum().backward()
        return block.linear.weight.grad.clone()

    assert torch.equal(gradient(True), gradient(False))


def test_f10_random_state_functions_reach_the_device() -> None:
    """pytorch/pytorch #158917: random numbers were an open item of the reference backend."""
    torch.manual_seed(5)
    first = torch.randn(3, device=DEVICE)
    cpu_state = torch.random.get_rng_state()
    with torch.random.fork_rng(devices=[0, 1], device_type=DEVICE):
        torch.manual_seed(5)
        assert torch.equal(torch.randn(3, device=DEVICE), first)
        torch.randn(3, device=SECOND)
    inside = torch.randn(3, device=DEVICE)
    assert torch.equal(torch.random.get_rng_state(), cpu_state)
    torch.manual_seed(5)
    torch.randn(3, device=DEVICE)
    assert torch.equal(torch.randn(3, device=DEVICE), inside)
    states = torch.neuron.get_rng_state_all()
    assert len(states) == torch.neuron.device_count()
    drawn = [torch.rand(2, device=f"neuron:{i}") for i in range(len(states))]
    torch.neuron.set_rng_state_all(states)
    for i, expected in enumerate(drawn):
        assert torch.equal(torch.rand(2, device=f"neuron:{i}"), expected)
    torch.neuron.manual_seed(6)
    assert torch.neuron.initial_seed() == 6


class Tied(nn.Module):
    """Embedding and output layer that share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight


def test_f16_copies_and_moves_keep_shared_parameters() -> None:
    """pytorch/pytorch PR #107427, #89129, #96026: deepcopy failed, moving a module untied it."""
    tied = Tied()
    optimizer = torch.optim.SGD(tied.parameters(), lr=0.5)
    weight = tied.embed.weight
    tied.to(DEVICE)
    assert tied.head.weight is tied.embed.weight is weight
    assert optimizer.param_groups[0]["params"][0].device.type == DEVICE
    before = weight.detach().cpu().clone()
    tied.head(tied.embed(torch.tensor([1, 2], device=DEVICE))).sum().backward()
    optimizer.step()
    assert not torch.equal(tied.embed.weight.detach().cpu(), before)

    copied = copy.deepcopy(tied)
    assert copied.head.weight is copied.embed.weight is not weight
    assert copied.embed.weight.data_ptr() != weight.data_ptr()
    assert torch.equal(copied.embed.weight, weight)
    tied.cpu()
    assert tied.head.weight is tied.embed.weight

    lazy = copy.deepcopy(nn.LazyLinear(3).to(DEVICE))
    assert lazy(torch.ones(2, 5, device=DEVICE)).device.type == DEVICE
    memo = copy.deepcopy({"a": weight.detach(), "b": weight.detach().view(-1)})
    memo["a"].zero_()
    assert not memo["b"].any()


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_f19_convenience_methods_exist() -> None:
    """pytorch/pytorch #97593, PR #98478, #118458: a renamed backend missed these methods."""
    x = torch.arange(6.0)
    on_device = x.neuron()
    assert on_device.is_neuron and not x.is_neuron
    assert str(x.neuron(1).device) == SECOND
    assert x.neuron(non_blocking=True).is_neuron
    module = nn.Linear(2, 2).neuron(1)
    assert str(module.weight.device) == SECOND
    storage = x.untyped_storage().neuron()
    assert storage.device.type == DEVICE and storage.is_neuron
    assert x.storage().neuron().is_neuron
    assert storage[4:12].nbytes() == 8
    assert on_device.untyped_storage().cpu().tolist() == x.untyped_storage().tolist()
    assert on_device.untyped_storage()[0:4].tolist() == x.untyped_storage()[0:4].tolist()
    packed = pack_padded_sequence(torch.ones(3, 2, 4), torch.tensor([3, 1]))
    assert packed.neuron().is_neuron
    assert packed.to(DEVICE).data.device.type == DEVICE


def test_f20_memory_statistics_are_complete(settled_memory: Callable[..., int]) -> None:
    """pytorch/pytorch #98070, #167210, #186260: a caching allocator with its statistics."""
    keep = torch.ones(3 * MIB, dtype=torch.uint8, device=DEVICE)
    stats = torch.neuron.memory_stats()
    kinds = ("allocated_bytes", "reserved_bytes", "active_bytes", "allocation", "segment")
    for kind, pool, figure in itertools.product(
        kinds, ("all", "small_pool", "large_pool"), ("current", "peak", "allocated", "freed")
    ):
        assert stats[f"{kind}.{pool}.{figure}"] >= 0
    assert {"num_alloc_retries", "num_ooms", "inactive_split_bytes.all.current"} <= stats.keys()
    before = settled_memory()
    torch.neuron.reset_peak_memory_stats()
    torch.empty(8 * MIB, dtype=torch.uint8, device=DEVICE)
    assert torch.neuron.max_memory_allocated() - before >= 8 * MIB
    torch.neuron.reset_peak_memory_stats()
    assert torch.neuron.max_memory_allocated() == torch.neuron.memory_allocated() == before
    assert "allocated" in torch.neuron.memory_summary().lower()
    segments = torch.neuron.memory_snapshot()
    active = sum(segment["active_size"] for segment in segments)
    assert active == torch.neuron.memory_stats()["active_bytes.all.current"] >= keep.numel()
    for segment in segments:
        end = segment["address"]
        for one in segment["blocks"]:
            assert one["address"] == end
            end = one["address"] + one["size"]
        assert end == segment["address"] + segment["total_size"]


def test_f22_memory_stays_flat() -> None:
    """verl-project/verl #2920, #198, #6412: memory grew each step until it ran out."""
    net = make_net(0, DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    allocated = []

    def read(step: int, loss: torch.Tensor, _: nn.Module) -> None:
        if step % 5 == 4:
            with pytest.raises(RuntimeError):
                loss @ loss
        allocated.append(torch.neuron.memory_allocated())

    train(net, optimizer, range(60), read=read)
    assert set(allocated[3:]) == {allocated[3]}


def test_f22_failed_backward_frees_its_graph(settled_memory: Callable[..., int]) -> None:
    """verl-project/verl #2920: the same with the exception in the middle of backward."""
    weight = torch.randn(256, 256, device=DEVICE, requires_grad=True)
    before = settled_memory()

    def fail(_: torch.Tensor) -> None:
        raise ValueError("stop here")

    for _ in range(5):
        hidden = (weight @ weight).relu()
        hidden.register_hook(fail)
        with pytest.raises(ValueError, match="stop here"):
            (hidden @ weight).sum().backward()
        del hidden
    assert settled_memory() == before
    _, gradients = with_gradients(lambda w: w.relu())(weight)
    assert_runs_the_same(lambda w: w.relu(), *moved((weight.detach(),), "cpu"))
    assert gradients[0].shape == weight.shape
