"""Saving, pickling and copying keep values, layouts, sharing and the device."""

import copy
import pickle
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from behaviour.subject import DEVICE, FIRST, SECOND

Trip = Callable[[Any], Any]


def through_save(value: Any) -> Any:
    """Save and load through memory."""
    buffer = BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def through_pickle(value: Any) -> Any:
    """Pickle and unpickle with the standard library."""
    return pickle.loads(pickle.dumps(value))


TRIPS = [through_save, through_pickle, copy.deepcopy]


@pytest.mark.parametrize("trip", TRIPS)
def test_values_layouts_and_places_survive(trip: Trip) -> None:
    x = torch.arange(24.0).view(4, 6)
    for device in (FIRST, SECOND):
        on = x.to(device)
        tensors = [
            on,
            on.t(),
            on[1:, ::2],
            on[:, :1].expand(4, 5),
            on[2:2],
            torch.tensor(3, device=device),
            on.to(torch.bfloat16),
            on > 5,
            torch.complex(on, -on).conj(),
            torch.view_as_real(torch.complex(on, -on)),
            on.clone().requires_grad_(),
        ]
        for tensor in tensors:
            again = trip(tensor)
            assert str(again.device) == device
            assert again.dtype == tensor.dtype and again.shape == tensor.shape
            assert again.stride() == tensor.stride()
            assert again.requires_grad == tensor.requires_grad
            assert torch.equal(again.cpu(), tensor.cpu())
            assert again.data_ptr() != tensor.data_ptr() or not tensor.numel()


@pytest.mark.parametrize("trip", [through_save, copy.deepcopy])
def test_shared_storage_stays_shared(trip: Trip) -> None:
    x = torch.arange(6.0, device=DEVICE)
    weight = nn.Parameter(torch.ones(2, device=DEVICE))
    again = trip({"x": x, "tail": x[3:], "weights": [weight, weight]})
    again["x"][4] = 100
    assert again["tail"].tolist() == [3.0, 100.0, 5.0]
    assert x[4].item() == 4
    assert again["weights"][0] is again["weights"][1]
    assert isinstance(again["weights"][0], nn.Parameter)


@pytest.mark.parametrize("trip", TRIPS)
def test_modules_keep_hooks_buffers_and_gradients(trip: Trip) -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to(DEVICE)
    net(torch.randn(4, 3, device=DEVICE)).sum().backward()
    again = trip(net)
    for (name, one), (other_name, other) in zip(
        [*net.named_parameters(), *net.named_buffers()],
        [*again.named_parameters(), *again.named_buffers()],
        strict=True,
    ):
        assert name == other_name and other.device == one.device
        assert torch.equal(one, other)
        assert other.requires_grad == one.requires_grad
    assert again[1].num_batches_tracked.item() == 1


def test_places_may_change_on_the_way(tmp_path: Path) -> None:
    x = torch.randn(5)
    path = tmp_path / "x.pt"
    for device in ("cpu", FIRST, SECOND):
        torch.save(x.to(device), path)
        for place in ("cpu", DEVICE, SECOND, "meta"):
            loaded = torch.load(path, map_location=place)
            assert loaded.device.type == torch.device(place).type
            if place != "meta":
                assert torch.equal(loaded.cpu(), x)
    with torch.device(SECOND):
        assert str(torch.load(path).device) == SECOND
    with pytest.raises(RuntimeError, match="neuron"):
        torch.load(path, map_location="neuron:77")


def test_generators_and_storages_can_be_copied() -> None:
    generator = torch.Generator(device=DEVICE).manual_seed(4)
    twin = through_pickle(generator)
    expected = torch.randn(3, generator=generator, device=DEVICE)
    assert torch.equal(torch.randn(3, generator=twin, device=DEVICE), expected)
    storage = torch.arange(4, dtype=torch.uint8, device=SECOND).untyped_storage()
    again = copy.deepcopy(storage)
    assert str(again.device) == SECOND
    assert again.tolist() == [0, 1, 2, 3]
    assert again.data_ptr() != storage.data_ptr()


def test_a_file_without_the_device_package_still_opens(tmp_path: Path, script: Any) -> None:
    torch.save({"x": torch.arange(3, device=SECOND)}, tmp_path / "x.pt")
    script(
        """
        import torch

        assert torch.load("x.pt", map_location="cpu")["x"].tolist() == [0, 1, 2]
        try:
            torch.load("x.pt")
        except RuntimeError as error:
            assert "neuron" in str(error), error
        else:
            raise SystemExit("loaded without a device")
        """,
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )


def test_arrays_are_only_made_on_request() -> None:
    x = torch.arange(3.0, device=DEVICE, requires_grad=True)
    with pytest.raises(TypeError, match="neuron"):
        x.detach().numpy()
    assert x.numpy(force=True).tolist() == [0.0, 1.0, 2.0]
    assert torch.from_numpy(x.numpy(force=True)).to(DEVICE).tolist() == [0.0, 1.0, 2.0]


def test_dlpack_shares_memory_on_the_device_and_refuses_others() -> None:
    import numpy

    x = torch.arange(4.0, device=SECOND)
    shared = torch.from_dlpack(x)
    assert str(shared.device) == SECOND
    shared[1] = 9
    assert x.tolist() == [0.0, 9.0, 2.0, 3.0]
    with pytest.raises(BufferError, match="neuron"):
        numpy.from_dlpack(x)
