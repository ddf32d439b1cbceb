"""safetensors saves from this device and loads onto it, by index and by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
from torch import nn

from behaviour.subject import DEVICE, FIRST, SECOND, assert_equal_states, state_of

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.bool,
    torch.complex64,
)


def tensors_of_every_dtype() -> dict[str, torch.Tensor]:
    """Make one tensor (2, 3) of every dtype the format has, a scalar and an empty one."""
    made = {str(dtype): torch.arange(6).view(2, 3).to(dtype) for dtype in DTYPES}
    return {**made, "scalar": torch.tensor(2.5), "empty": torch.empty(0, 4)}


def assert_loaded(
    loaded: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], device: str
) -> None:
    """Check device, dtype, shape and bytes of everything loaded."""
    assert {str(value.device) for value in loaded.values()} == {device}
    on_host = {name: value.cpu() for name, value in loaded.items()}
    for name, value in expected.items():
        assert on_host[name].shape == value.shape
    assert_equal_states(
        {name: bits(value) for name, value in on_host.items()},
        {name: bits(value) for name, value in expected.items()},
    )
    assert {name: value.dtype for name, value in on_host.items()} == {
        name: value.dtype for name, value in expected.items()
    }


def bits(value: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor."""
    return value.reshape(-1).view(torch.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file that was saved from the second device."""
    path = tmp_path / "saved.safetensors"
    save_file({k: v.to(SECOND) for k, v in tensors_of_every_dtype().items()}, path)
    return path


PLACES: list[tuple[Any, str]] = [
    ("cpu", "cpu"),
    (0, FIRST),
    (1, SECOND),
    (DEVICE, FIRST),
    (SECOND, SECOND),
    (torch.device(SECOND), SECOND),
]


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize(("place", "expected"), PLACES, ids=[str(p) for p, _ in PLACES])
def test_files_load_onto_a_device(path: Path, place: Any, expected: str, backend: str) -> None:
    assert_loaded(
        load_file(path, device=place, backend=backend), tensors_of_every_dtype(), expected
    )


def test_a_name_without_index_means_the_current_device(path: Path) -> None:
    with torch.neuron.device(2):
        loaded = load_file(path, device=DEVICE)
    assert_loaded(loaded, tensors_of_every_dtype(), "neuron:2")


@pytest.mark.parametrize("place", ["neuron:99", 99, "neuron:x", "neurons"])
def test_a_device_that_does_not_exist_is_an_error(path: Path, place: Any) -> None:
    with pytest.raises((RuntimeError, SafetensorError), match=str(place)):
        load_file(path, device=place)


def test_bytes_are_those_that_the_cpu_writes(path: Path, tmp_path: Path) -> None:
    tensors = tensors_of_every_dtype()
    save_file(tensors, tmp_path / "cpu.safetensors")
    assert path.read_bytes() == (tmp_path / "cpu.safetensors").read_bytes()
    written = save({name: value.to(DEVICE) for name, value in tensors.items()})
    assert_loaded(load(written), tensors, "cpu")


@pytest.mark.parametrize("place", [1, SECOND])
def test_parts_of_a_file_load_onto_a_device(path: Path, place: int | str) -> None:
    tensors = tensors_of_every_dtype()
    with safe_open(path, framework="pt", device=place) as file:
        assert set(file.keys()) == tensors.keys()
        part = file.get_slice("torch.bfloat16")
        assert part.get_shape() == [2, 3]
        column = part[:, 1:]
        whole = file.get_tensor("torch.int64")
    assert str(column.device) == str(whole.device) == SECOND
    assert torch.equal(column.cpu(), tensors["torch.bfloat16"][:, 1:])
    assert torch.equal(whole.cpu(), tensors["torch.int64"])


def test_what_was_loaded_is_memory_of_the_device(
    path: Path, settled_memory: Callable[..., int]
) -> None:
    before = settled_memory(1)
    loaded = load_file(path, device=1)
    assert torch.neuron.memory_allocated(1) > before
    loaded["torch.float32"].add_(1)
    assert load_file(path)["torch.float32"].tolist() == [[0, 1, 2], [3, 4, 5]]
    del loaded
    assert torch.neuron.memory_allocated(1) == before


class Tied(nn.Module):
    """An embedding whose weight is the output layer's as well, and a statistic."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight


@pytest.mark.parametrize("place", ["cpu", 1, SECOND])
def test_models_with_shared_weights_are_saved_once(place: int | str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    net, again = Tied().to(SECOND), Tied().to(SECOND)
    save_model(net, path)
    assert set(load_file(path)) & {"embed.weight", "head.weight"} == {"embed.weight"}
    assert load_model(again, path, device=place) == (set(), [])
    assert again.head.weight is again.embed.weight
    assert str(again.embed.weight.device) == SECOND
    assert_equal_states(state_of(again), state_of(net))


def test_tensors_that_share_memory_are_refused(tmp_path: Path) -> None:
    x = torch.arange(6.0, device=DEVICE)
    with pytest.raises(RuntimeError, match="share memory"):
        save_file({"x": x, "view": x.view(2, 3)}, tmp_path / "shared.safetensors")
    with pytest.raises(ValueError, match="non contiguous"):
        save_file({"x": x.view(2, 3).t()}, tmp_path / "strided.safetensors")
    # The same address on another device is another tensor.
    apart = {"first": x, "second": x.to(SECOND)}
    save_file(apart, tmp_path / "apart.safetensors")
    assert torch.equal(load_file(tmp_path / "apart.safetensors")["second"], x.cpu())
