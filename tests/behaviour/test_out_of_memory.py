"""Running out of device or host memory is one clear error, and nothing is lost by it."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch

from behaviour.subject import DEVICE, SECOND
from behaviour.training import make_net, train

MIB = 1024**2
Limited = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def limited(settled_memory: Callable[..., int]) -> Limited:
    """Let this process use only so much more of a device's memory than other tests hold."""

    @contextmanager
    def context(size_bytes: int, device: int = 0) -> Iterator[None]:
        settled_memory(device)
        torch.neuron.empty_cache()
        total = torch.neuron.mem_get_info(device)[1]
        allowed = size_bytes + torch.neuron.memory_reserved(device)
        torch.neuron.set_per_process_memory_fraction(allowed / total, device)
        try:
            yield
        finally:
            torch.neuron.set_per_process_memory_fraction(1.0, device)
            settled_memory(device)
            torch.neuron.empty_cache()

    return context


def block(size_bytes: int, device: str = DEVICE) -> torch.Tensor:
    """Allocate so many bytes."""
    return torch.empty(size_bytes, dtype=torch.uint8, device=device)


def test_more_than_the_core_has_is_refused_with_every_figure(
    settled_memory: Callable[..., int],
) -> None:
    total = torch.neuron.mem_get_info()[1]
    keep = torch.arange(1000, device=DEVICE)
    allocated = settled_memory()
    ooms = torch.neuron.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError) as caught:
        block(total + 1)
    text = str(caught.value)
    for word in ("free", "allocated", "reserved", "trn2.3xlarge", "hint:"):
        assert word in text, f"{word!r} is not in: {text}"
    assert len(re.findall(r"\d[\d.]* (?:bytes|KiB|MiB|GiB)", text)) >= 4, text
    assert "24.00 GiB" in text
    asked, free = (int(number) for number in re.findall(r"GiB \((\d+) bytes\)", text))
    assert asked == total + 1 and total - 2**27 < free < asked  # both read 24.00 GiB
    assert torch.neuron.memory_allocated() == allocated
    assert torch.neuron.memory_stats()["num_ooms"] == ooms + 1
    assert torch.equal(keep.cpu(), torch.arange(1000))


def test_freeing_and_trying_again_works(limited: Limited) -> None:
    with limited(64 * MIB):
        keep = torch.ones(4 * MIB, dtype=torch.uint8, device=DEVICE)
        held = [block(11 * MIB) for _ in range(3)]
        with pytest.raises(torch.OutOfMemoryError, match="trn2"):
            block(32 * MIB)
        del held
        assert block(36 * MIB).numel() == 36 * MIB
        torch.neuron.empty_cache()
        assert block(40 * MIB).numel() == 40 * MIB
        assert bool((keep == 1).all())
    assert block(128 * MIB).numel() == 128 * MIB


def test_cached_blocks_are_given_back_before_an_error(limited: Limited) -> None:
    with limited(64 * MIB):
        retries = torch.neuron.memory_stats()["num_alloc_retries"]
        held = [block(4 * MIB) for _ in range(12)]
        del held
        assert torch.neuron.memory_reserved() >= 40 * MIB
        big = block(60 * MIB)
        assert torch.neuron.memory_stats()["num_alloc_retries"] >= retries
        del big
        for size in (1, 3, 7, 17, 33, 50):
            block(size * MIB)


def test_fragmented_memory_is_usable_again_once_it_is_free(limited: Limited) -> None:
    with limited(64 * MIB):
        blocks = [block(2 * MIB) for _ in range(24)]
        for i, tensor in enumerate(blocks):
            tensor.fill_(i)
        survivors = blocks[1::2]
        del blocks, tensor
        with pytest.raises(torch.OutOfMemoryError):
            block(50 * MIB)
        assert block(2 * MIB).numel() == 2 * MIB
        assert [int(t[0]) for t in survivors] == list(range(1, 24, 2))
        assert all(bool((t == t[0]).all()) for t in survivors)
        del survivors
        assert block(60 * MIB).numel() == 60 * MIB


def test_training_survives_an_error_in_the_middle_of_a_step(limited: Limited) -> None:
    with limited(64 * MIB):
        net = make_net(0, DEVICE)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        train(net, optimizer, range(2))
        allocated = []
        for _ in range(5):
            weight = torch.ones(1024, 1024, device=DEVICE, requires_grad=True)
            hidden = weight
            kept = []
            with pytest.raises(torch.OutOfMemoryError):
                for _ in range(100):
                    hidden = hidden * 2
                    kept.append(hidden)
            del hidden, kept, weight
            train(net, optimizer, range(2))
            allocated.append(torch.neuron.memory_allocated())
        assert len(set(allocated)) == 1
        assert all(torch.isfinite(p).all() for p in net.parameters())


def test_an_operator_that_runs_out_leaves_its_arguments_alone(limited: Limited) -> None:
    with limited(48 * MIB):
        x = torch.ones(4 * MIB, dtype=torch.float16, device=DEVICE)
        copies = [x + 1, x + 2]
        torch.neuron.empty_cache()
        with pytest.raises(torch.OutOfMemoryError):
            torch.cat([x, *copies])
        out = torch.empty(0, dtype=torch.float16, device=DEVICE)
        with pytest.raises(torch.OutOfMemoryError):
            torch.cat([x, *copies], out=out)
        assert bool((x == 1).all()) and bool((copies[1] == 3).all())
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(64 * MIB, dtype=torch.uint8).to(DEVICE)
        x.mul_(2)
        assert bool((x == 2).all())


def test_each_device_has_its_own_limit(limited: Limited) -> None:
    with limited(16 * MIB, device=1):
        with pytest.raises(torch.OutOfMemoryError, match="neuron:1"):
            block(32 * MIB, SECOND)
        assert block(32 * MIB).numel() == 32 * MIB


@pytest.mark.parametrize("fraction", [-0.1, 1.5, float("nan")])
def test_a_fraction_outside_zero_and_one_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction"):
        torch.neuron.set_per_process_memory_fraction(fraction)


def test_the_host_running_out_is_said(settled_memory: Callable[..., int]) -> None:
    from torchneuron import _C

    keep = torch.arange(100, device=DEVICE)
    settled_memory()
    torch.neuron.empty_cache()
    _C.set_host_memory_limit(16 * MIB)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="host") as caught:
            block(256 * MIB)
        assert "hint:" in str(caught.value)
        assert keep.sum().item() == 4950
    finally:
        _C.set_host_memory_limit(None)
    assert block(256 * MIB).numel() == 256 * MIB
    assert _C.host_memory_available() > 0


def test_small_tensors_cost_little_more_than_their_bytes(
    settled_memory: Callable[..., int],
) -> None:
    before = settled_memory()
    tensors = [torch.empty(16, device=DEVICE) for _ in range(1000)]
    assert torch.neuron.memory_allocated() - before <= 1000 * (64 + 128 + 64)
    del tensors
    assert torch.neuron.memory_allocated() == before
