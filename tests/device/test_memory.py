"""Memory: statistics, peaks, limits, out of memory, snapshots."""

import pickle
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
from torch.cuda import _memory_viz

from torchneuron.errors import ArgumentError

MIB = 2**20
GIB = 2**30


@pytest.fixture(autouse=True)
def clean(settled_memory: Callable[..., int]) -> None:
    """Start each test with an empty cache and fresh peaks."""
    torch.neuron.init()
    settled_memory()
    torch.neuron.empty_cache()
    for index in range(torch.neuron.device_count()):
        torch.neuron.reset_peak_memory_stats(index)
        torch.neuron.reset_accumulated_memory_stats(index)


def test_allocated_follows_live_tensors(settled_memory: Callable[..., int]) -> None:
    before = settled_memory()
    tensor = torch.empty(4 * MIB, dtype=torch.uint8, device="neuron")
    held = torch.neuron.memory_allocated() - before
    assert 4 * MIB <= held <= 4 * MIB + 4096
    assert torch.neuron.memory_reserved() >= torch.neuron.memory_allocated()
    del tensor
    assert torch.neuron.memory_allocated() == before


def test_devices_are_counted_apart(settled_memory: Callable[..., int]) -> None:
    before = settled_memory(0)
    tensor = torch.empty(MIB, dtype=torch.uint8, device="neuron:2")
    assert torch.neuron.memory_allocated("neuron:2") >= tensor.nbytes
    assert torch.neuron.memory_allocated(0) == before


def test_peak_stays_and_can_be_reset() -> None:
    base = torch.neuron.memory_allocated()
    tensor = torch.empty(8 * MIB, dtype=torch.uint8, device="neuron")
    del tensor
    assert torch.neuron.max_memory_allocated() >= base + 8 * MIB
    assert torch.neuron.max_memory_reserved() >= torch.neuron.max_memory_allocated()
    torch.neuron.reset_peak_memory_stats()
    assert torch.neuron.max_memory_allocated() == torch.neuron.memory_allocated()


def test_accumulated_totals_can_be_reset() -> None:
    torch.empty(MIB, dtype=torch.uint8, device="neuron")
    assert torch.neuron.memory_stats()["allocated_bytes.all.freed"] >= MIB
    torch.neuron.reset_accumulated_memory_stats()
    assert torch.neuron.memory_stats()["allocated_bytes.all.freed"] == 0


def test_stats_have_the_flat_keys_of_cuda() -> None:
    stats = torch.neuron.memory_stats()
    counts = ("allocation", "segment", "active", "inactive_split")
    sizes = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes")
    for name in (*counts, *sizes, "requested_bytes"):
        for pool in ("all", "small_pool", "large_pool"):
            for metric in ("current", "peak", "allocated", "freed"):
                assert isinstance(stats[f"{name}.{pool}.{metric}"], int)
    for name in ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"):
        assert stats[name] >= 0
    assert list(stats) == sorted(stats)
    assert (
        stats["reserved_bytes.all.current"]
        >= stats["allocated_bytes.all.current"]
        >= stats["requested_bytes.all.current"]
    )


def test_small_and_large_requests_go_to_their_pools() -> None:
    small = torch.empty(1024, dtype=torch.uint8, device="neuron:3")
    large = torch.empty(2 * MIB, dtype=torch.uint8, device="neuron:3")
    stats = torch.neuron.memory_stats(3)
    assert stats["allocation.small_pool.current"] == 1
    assert stats["allocation.large_pool.current"] == 1
    assert stats["allocated_bytes.large_pool.current"] >= large.nbytes
    assert stats["allocated_bytes.small_pool.current"] >= small.nbytes


def test_empty_cache_gives_back_what_is_unused() -> None:
    tensor = torch.empty(16 * MIB, dtype=torch.uint8, device="neuron")
    del tensor
    reserved = torch.neuron.memory_reserved()
    assert reserved >= 16 * MIB
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved() <= reserved - 16 * MIB


def test_mem_get_info_is_free_and_total() -> None:
    free, total = torch.neuron.mem_get_info()
    assert total == 24 * GIB
    assert free == total - torch.neuron.memory_reserved()


def test_beyond_the_core_out_of_memory_is_raised_with_numbers() -> None:
    ooms = torch.neuron.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(25 * GIB, dtype=torch.uint8, device="neuron")
    text = str(caught.value)
    assert "25.00 GiB" in text and "24.00 GiB" in text and "trn2.3xlarge" in text
    assert torch.neuron.memory_stats()["num_ooms"] == ooms + 1
    assert torch.ones(2, device="neuron").sum().item() == 2


def test_fraction_limits_the_process() -> None:
    try:
        torch.neuron.set_per_process_memory_fraction(64 * MIB / (24 * GIB))
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(128 * MIB, dtype=torch.uint8, device="neuron")
    finally:
        torch.neuron.set_per_process_memory_fraction(1.0)
    torch.empty(128 * MIB, dtype=torch.uint8, device="neuron")


@pytest.mark.parametrize("fraction", [-0.1, 1.1, "half", True, None])
def test_fraction_must_be_a_fraction(fraction: object) -> None:
    with pytest.raises(ArgumentError, match="from 0 to 1"):
        torch.neuron.set_per_process_memory_fraction(fraction)


def test_snapshot_adds_up() -> None:
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="neuron:1")
    segments = [each for each in torch.neuron.memory_snapshot() if each["device"] == 1]
    stats = torch.neuron.memory_stats(1)
    assert sum(each["total_size"] for each in segments) == stats["reserved_bytes.all.current"]
    assert sum(each["allocated_size"] for each in segments) == stats["allocated_bytes.all.current"]
    blocks = [block for each in segments for block in each["blocks"]]
    assert any(
        block["state"] == "active_allocated" and block["address"] == tensor.data_ptr()
        for block in blocks
    )


def test_snapshot_opens_in_the_viewers_of_torch(tmp_path: Path) -> None:
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="neuron")
    file = tmp_path / "snapshot.pickle"
    torch.neuron.memory._dump_snapshot(file)
    assert b"torchneuron" not in file.read_bytes()
    snapshot = pickle.loads(file.read_bytes())
    assert len(snapshot["device_traces"]) == torch.neuron.device_count()
    assert "neuron" not in _memory_viz.segsum(snapshot) and tensor.is_neuron
    assert "html" in _memory_viz.segment_plot(snapshot)


def test_summary_is_a_table() -> None:
    text = torch.neuron.memory_summary()
    for expected in ("neuron:0", "Allocated memory", "large pool", "out of memory"):
        assert expected in text
    assert "large pool" not in torch.neuron.memory_summary(abbreviated=True)
    assert max(map(len, text.splitlines())) <= 100


def test_asking_before_first_use_uses_nothing(script) -> None:
    script(
        """
        import torch
        assert torch.neuron.memory_allocated() == torch.neuron.max_memory_reserved() == 0
        assert torch.neuron.memory_stats() == {} and torch.neuron.memory_snapshot() == []
        torch.neuron.empty_cache()
        torch.neuron.reset_peak_memory_stats()
        torch.neuron.reset_accumulated_memory_stats()
        assert not torch.neuron.is_initialized()
        """
    )


def test_memory_is_a_submodule_and_loaded_once(script) -> None:
    script(
        """
        import torch
        import torch.neuron.memory as memory
        from torch.neuron.memory import memory_allocated
        import torchneuron.device.memory
        assert memory is torchneuron.device.memory is torch.neuron.memory
        assert memory_allocated is torch.neuron.memory_allocated
        """
    )


def test_a_smaller_arena_is_said_when_it_is_made(
    fresh_script: Callable[..., CompletedProcess[str]],
) -> None:
    process = fresh_script(
        """
        import resource
        import warnings
        import torch

        limit = 20 << 30  # less than the 24 GiB of address space that a core wants
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert torch.ones(2, device="neuron").sum().item() == 2
            torch.ones(2, device="neuron")
        print(*(str(warning.message) for warning in caught), sep="\\n")
        """
    )
    assert process.stdout.count("neuron:0 has ") == 1
    assert "of address space instead of" in process.stdout and "hint: raise" in process.stdout
