"""torch.accelerator: every function of torch 2.13 but Graph, on the neuron device."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import accelerator

GIB = 2**30


def test_the_accelerator_is_neuron() -> None:
    assert accelerator.current_accelerator() == torch.device("neuron")
    assert accelerator.current_accelerator(check_available=True) == torch.device("neuron")
    assert accelerator.is_available()
    assert accelerator.device_count() == torch.neuron.device_count() == 4
    assert torch.get_device_module() is torch.neuron


def test_every_public_function_is_tested_here() -> None:
    tested = {
        "current_accelerator", "current_device_index", "current_device_idx", "current_stream",
        "device_count", "device_index", "empty_cache", "empty_host_cache",
        "get_device_capability", "get_memory_info", "is_available", "max_memory_allocated",
        "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
        "reset_accumulated_memory_stats", "reset_peak_memory_stats", "set_device_index",
        "set_device_idx", "set_stream", "synchronize",
    }  # fmt: skip
    assert set(accelerator.__all__) == tested | {"Graph"}


def test_device_index_functions() -> None:
    accelerator.set_device_index("neuron:2")
    assert accelerator.current_device_index() == torch.neuron.current_device() == 2
    with accelerator.device_index(3):
        assert accelerator.current_device_index() == 3
    with accelerator.device_index(None):
        assert accelerator.current_device_index() == 2
    with pytest.warns(FutureWarning):
        accelerator.set_device_idx(1)
    with pytest.warns(FutureWarning):
        assert accelerator.current_device_idx() == 1
    with pytest.raises(RuntimeError, match="neuron:9"):
        accelerator.set_device_index(9)
    with pytest.raises(ValueError, match="cpu"):
        accelerator.set_device_index("cpu")


def test_streams() -> None:
    stream = torch.Stream("neuron:1")
    accelerator.set_stream(stream)
    assert accelerator.current_stream() == torch.neuron.current_stream() == stream
    assert accelerator.current_device_index() == 1
    accelerator.synchronize()
    accelerator.synchronize("neuron:0")


def test_capability_names_dtypes() -> None:
    supported = accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool} <= supported


def test_memory() -> None:
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()
    accelerator.reset_accumulated_memory_stats()
    before = accelerator.memory_allocated()
    tensor = torch.empty(4 * 2**20, dtype=torch.uint8, device="neuron")
    held = accelerator.memory_allocated() - before
    assert held >= tensor.nbytes
    assert accelerator.memory_reserved() >= accelerator.memory_allocated()
    del tensor
    assert accelerator.memory_allocated() == before
    assert accelerator.max_memory_allocated() >= before + held
    assert accelerator.max_memory_reserved() >= accelerator.max_memory_allocated()
    accelerator.reset_peak_memory_stats(0)
    assert accelerator.max_memory_allocated() == before


def test_memory_stats_are_those_of_torch_neuron() -> None:
    ours, theirs = torch.neuron.memory_stats(), accelerator.memory_stats()
    same = ours.keys() & theirs.keys()
    assert len(same) > 80
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}


def test_memory_info() -> None:
    free, total = accelerator.get_memory_info("neuron:3")
    assert total == 24 * GIB and 0 < free <= total
    assert (free, total) == torch.neuron.mem_get_info(3)


ABSENT: dict[str, Callable[[int], Any]] = {
    "current_stream": accelerator.current_stream,
    "device_index": lambda i: accelerator.device_index(i).__enter__(),
    "get_device_capability": accelerator.get_device_capability,
    "get_memory_info": accelerator.get_memory_info,
    "max_memory_allocated": lambda i: accelerator.max_memory_allocated(f"neuron:{i}"),
    "max_memory_reserved": accelerator.max_memory_reserved,
    "memory_allocated": accelerator.memory_allocated,
    "memory_reserved": accelerator.memory_reserved,
    "memory_stats": accelerator.memory_stats,
    "reset_accumulated_memory_stats": accelerator.reset_accumulated_memory_stats,
    "reset_peak_memory_stats": accelerator.reset_peak_memory_stats,
    "set_device_index": accelerator.set_device_index,
    "synchronize": accelerator.synchronize,
    "stream": lambda i: torch.Stream(f"neuron:{i}"),
    "set_stream": lambda i: accelerator.set_stream(phantom(i)),
    "stream_synchronize": lambda i: phantom(i).synchronize(),
    "stream_query": lambda i: phantom(i).query(),
    "event_record": lambda i: torch.Event("neuron").record(phantom(i)),
    "generator": lambda i: torch.Generator(f"neuron:{i}"),
    "tensor": lambda i: torch.empty(1, device=f"neuron:{i}"),
}


def phantom(index: int) -> torch.Stream:
    """Name a stream of a device, whether or not it is there."""
    kind = torch.Stream("neuron").device_type
    return torch.Stream(stream_id=0, device_index=index, device_type=kind)


@pytest.mark.parametrize("name", ABSENT)
@pytest.mark.parametrize("index", [4, 9, 126])
def test_a_device_that_is_not_there_is_refused(name: str, index: int) -> None:
    torch.empty(1, device="neuron")  # before that torch answers some by itself
    before = accelerator.current_device_index()
    with pytest.raises(RuntimeError, match=rf"(?s)neuron:{index} does not exist.*NRN110.*hint: "):
        ABSENT[name](index)
    assert accelerator.current_device_index() == before


@pytest.mark.parametrize("index", [-3, -1])
def test_an_index_below_zero_is_refused(index: int) -> None:
    torch.empty(1, device="neuron")
    for name in ("get_memory_info", "memory_allocated", "memory_stats", "reset_peak_memory_stats"):
        with pytest.raises((RuntimeError, ValueError), match=str(index)):
            ABSENT[name](index)


def test_host_cache_can_be_emptied() -> None:
    torch.ones(4).pin_memory()
    accelerator.empty_host_cache()


def test_graph_says_that_it_is_not_there() -> None:
    with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
        with accelerator.Graph():
            torch.ones(1, device="neuron")
