"""Reading what users pass as a device."""

import pytest
import torch

from torchneuron.device.index import check, device_index, written_index
from torchneuron.errors import ArgumentError, DeviceIndexError


@pytest.mark.parametrize(
    ("written", "index"),
    [(None, None), ("neuron", None), ("neuron:2", 2), (torch.device("neuron", 1), 1), (-1, -1)],
)
def test_written_index(written: object, index: int | None) -> None:
    assert written_index(written) == index


def test_device_index_falls_back_to_the_current_device() -> None:
    torch.neuron.set_device(2)
    assert device_index(None) == device_index("neuron") == 2
    assert device_index("neuron:1") == 1


def test_device_index_may_insist_on_an_index() -> None:
    with pytest.raises(ArgumentError, match="names no device index"):
        device_index("neuron", optional=False)


@pytest.mark.parametrize("index", [-1, 4, 127, 128, 300])
def test_check_refuses_what_is_outside(index: int) -> None:
    with pytest.raises(DeviceIndexError, match=f"neuron:{index}"):
        check(index)
