"""What a device says about itself."""

import copy
import dataclasses
import pickle

import pytest
import torch


def test_properties_of_the_default_instance() -> None:
    properties = torch.neuron.get_device_properties("neuron:1")
    assert dataclasses.asdict(properties) == {
        "name": "trn2",
        "chip": "Trainium2",
        "cores": 8,
        "lnc": 2,
        "total_memory": 24 * 2**30,
        "emulated": True,
        "runtime": "host",
    }


def test_properties_cannot_be_changed() -> None:
    properties = torch.neuron.get_device_properties()
    with pytest.raises(dataclasses.FrozenInstanceError):
        properties.cores = 9
    assert copy.deepcopy(properties) is properties and copy.copy(properties) is properties


def test_pickled_properties_name_no_module_of_ours() -> None:
    properties = torch.neuron.get_device_properties()
    data = pickle.dumps(properties)
    assert b"torchneuron" not in data
    assert pickle.loads(data).total_memory == properties.total_memory


def test_name_says_that_it_is_emulated() -> None:
    name = torch.neuron.get_device_name()
    assert "neuron" in name and "emulated" in name and "trn2" in name


def test_capability_is_the_generation_of_the_core() -> None:
    assert torch.neuron.get_device_capability() == (3, 0)


def test_trn2_48xlarge_has_64_devices_of_24_gib(script) -> None:
    script(
        """
        import torch
        assert torch.neuron.device_count() == torch.accelerator.device_count() == 64
        assert torch.ones(2, device="neuron:63").sum().item() == 2
        assert torch.neuron.get_device_properties(63).total_memory == 24 * 2**30
        assert torch.neuron.mem_get_info(63)[1] == 24 * 2**30
        """,
        env={"TORCHNEURON_INSTANCE": "trn2.48xlarge"},
    )


def test_lnc_1_halves_the_memory_of_twice_the_devices(script) -> None:
    script(
        """
        import torch
        properties = torch.neuron.get_device_properties()
        assert (torch.neuron.device_count(), properties.lnc) == (8, 1)
        assert properties.total_memory == 12 * 2**30
        """,
        env={"NEURON_LOGICAL_NC_CONFIG": "1"},
    )
