"""Nested tensors of the strided layout, torch.nested's default, move between devices.

What cannot be moved says so.
"""

import pytest
import torch

from behaviour.subject import DEVICE, SECOND, assert_runs_the_same

# The constructors say that the layout is a prototype, once per process.
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def parts(device: str = "cpu") -> list[torch.Tensor]:
    """Make two matrices of three columns and of different heights."""
    return [torch.arange(n * 3.0, device=device).reshape(n, 3) for n in (2, 4)]


def assert_is(nested: torch.Tensor, device: str) -> None:
    """Check where a nested tensor, its memory and its bookkeeping are, and what is in it."""
    expected = torch.device(device)
    assert nested.device.type == expected.type and nested.device.index == expected.index
    assert nested.values().device == nested.device
    assert nested.untyped_storage().device == nested.device
    assert nested._nested_tensor_size().device.type == "cpu"
    for got, want in zip(nested.unbind(), parts(), strict=True):
        assert got.device == nested.device and got.tolist() == want.tolist()


ROUTES = {
    "to-device": (lambda x: x.to(DEVICE), "cpu", "neuron:0"),
    "to-second": (lambda x: x.to(SECOND), "cpu", SECOND),
    "method": (lambda x: x.neuron(), "cpu", "neuron:0"),
    "across": (lambda x: x.to(SECOND), DEVICE, SECOND),
    "cpu": (lambda x: x.cpu(), DEVICE, "cpu"),
    "to-cpu": (lambda x: x.to("cpu"), SECOND, "cpu"),
    "copied": (lambda x: x.to(x.device, copy=True), SECOND, SECOND),
    "clone": (lambda x: x.clone(), SECOND, SECOND),
    "copy-in": (lambda x: torch.empty_like(x, device=SECOND).copy_(x), "cpu", SECOND),
    "copy-out": (lambda x: torch.empty_like(x, device="cpu").copy_(x), SECOND, "cpu"),
}


@pytest.mark.parametrize("route", ROUTES)
def test_memory_and_bookkeeping_move(route: str) -> None:
    move, source, target = ROUTES[route]
    nested = torch.nested.nested_tensor(parts(), device=source)
    moved = move(nested)
    assert_is(moved, target)
    assert moved.data_ptr() != nested.data_ptr()
    assert_is(nested, str(nested.device))


@pytest.mark.parametrize("device", ["cpu", DEVICE, SECOND])
def test_factories_like_a_nested_tensor_take_a_device(device: str) -> None:
    for source in ("cpu", DEVICE):
        nested = torch.nested.nested_tensor(parts(), device=source)
        zeros = torch.zeros_like(nested, device=device)
        assert zeros.device.type == torch.device(device).type
        assert [part.sum().item() for part in zeros.unbind()] == [0, 0]


def test_a_dtype_changes_with_the_device_and_without_it() -> None:
    nested = torch.nested.nested_tensor(parts(), device=DEVICE)
    assert nested.to(torch.bfloat16).device == nested.device
    moved = nested.to("cpu", torch.float64)
    assert moved.dtype == torch.float64 and moved.device.type == "cpu"
    assert moved.unbind()[1].tolist() == parts()[1].tolist()


def test_gradients_go_back_through_a_move() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        nested = torch.nested.as_nested_tensor([x[:2], x[1:]])
        there = nested.to("cpu").to(x.device)
        torch.nested.to_padded_tensor(there * 3, 0.0).sum().backward()
        return x.grad

    assert_runs_the_same(run, torch.ones(4, 3, requires_grad=True))


def test_a_saved_nested_tensor_can_be_loaded_elsewhere(tmp_path) -> None:
    path = tmp_path / "nested.pt"
    torch.save(torch.nested.nested_tensor(parts(), device=DEVICE), path)
    assert_is(torch.load(path), "neuron:0")
    assert_is(torch.load(path, map_location="cpu"), "cpu")
    assert_is(torch.load(path, map_location=SECOND), SECOND)


def test_an_operator_that_only_has_a_cpu_kernel_says_that_its_result_does_not_move() -> None:
    library = torch.library.Library("moves_nothing", "FRAGMENT")
    library.define("double(Tensor x, *, Device? device=None) -> Tensor")
    library.impl("double", lambda x, device=None: x * 2, "CPU")
    double = torch.ops.moves_nothing.double
    x = torch.ones(2, device=SECOND)
    assert double(x).device == double(x, device=SECOND).device == x.device
    for device in ("cpu", "neuron:2"):
        with pytest.raises(NotImplementedError, match=rf"(?s)result on {device}.*hint: "):
            double(x, device=device)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_tensors_say_that_they_do_not_move() -> None:
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    with pytest.raises(NotImplementedError, match=r"(?s)quantized.*hint: .*dequantize"):
        quantized.to(DEVICE)
    there = torch.quantize_per_tensor(torch.ones(3, device=DEVICE), 0.1, 0, torch.qint8)
    with pytest.raises(NotImplementedError, match=r"(?s)quantized.*hint: .*dequantize"):
        there.cpu()
    assert there.dequantize().cpu().allclose(torch.ones(3))
