"""The module torch.neuron: what is in it, and what PyTorch generates for the device."""

import copy
import io
import pickle

import pytest
import torch
import torch.utils.checkpoint

import torchneuron.device

TABLE = """
    is_available device_count current_device set_device device device_of synchronize
    get_device_name get_device_properties get_device_capability is_bf16_supported is_initialized
    init Stream Event stream current_stream default_stream set_stream memory_allocated
    max_memory_allocated memory_reserved max_memory_reserved memory_stats memory_summary
    memory_snapshot mem_get_info empty_cache reset_peak_memory_stats
    set_per_process_memory_fraction manual_seed manual_seed_all seed seed_all initial_seed
    get_rng_state get_rng_state_all set_rng_state set_rng_state_all default_generators
""".split()


def test_torch_neuron_is_our_module() -> None:
    assert torch.neuron is torchneuron.device
    assert torch.get_device_module("neuron") is torch.neuron


@pytest.mark.parametrize("name", TABLE)
def test_the_documented_name_exists(name: str) -> None:
    assert name in torch.neuron.__all__
    assert getattr(torch.neuron, name) is not None


def test_all_names_exist_and_are_sorted() -> None:
    assert list(torch.neuron.__all__) == sorted(torch.neuron.__all__)
    for name in torch.neuron.__all__:
        getattr(torch.neuron, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute `memry`"):
        torch.neuron.memry  # noqa: B018


def test_public_functions_say_their_stability() -> None:
    for name in TABLE:
        documented = getattr(torch.neuron, name)
        if callable(documented):
            text = documented.__doc__ or ""
            assert "Stability: S." in text or "Stability: E." in text, name


def test_generated_methods() -> None:
    tensor = torch.ones(2)
    assert tensor.neuron().device == torch.device("neuron", 0)
    assert tensor.neuron(2).is_neuron and not tensor.is_neuron
    assert torch.nn.Linear(2, 2).neuron("neuron:1").weight.device.index == 1
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2, 1), torch.ones(1, 1)])
    assert packed.neuron().is_neuron
    storage = tensor.untyped_storage().neuron()
    assert storage.is_neuron and bytes(storage) == bytes(tensor.untyped_storage())


def test_integer_devices_mean_neuron() -> None:
    assert torch.device(1) == torch.device("neuron", 1)
    assert torch.ones(2).to(1).device.index == 1
    assert torch.zeros(1, device=0).is_neuron


def test_saved_and_pickled_tensors_name_no_module_of_ours() -> None:
    tensor = torch.arange(3.0, device="neuron:1")
    module = torch.nn.Linear(2, 2).neuron()
    file = io.BytesIO()
    torch.save({"tensor": tensor, "module": module.state_dict()}, file)
    assert b"torchneuron" not in file.getvalue()
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["tensor"].device == tensor.device and torch.equal(loaded["tensor"], tensor)
    assert b"torchneuron" not in pickle.dumps(tensor)
    assert copy.deepcopy(tensor).device == tensor.device


def test_loading_on_fewer_devices_names_both_numbers(script, tmp_path) -> None:
    file = tmp_path / "tensor.pt"
    torch.save(torch.ones(2, device="neuron:3"), file)
    script(
        f"""
        import torch
        try:
            torch.load({str(file)!r})
        except RuntimeError as error:
            assert "3" in str(error) and "device_count() is 2" in str(error)
            assert "map_location" in str(error)
        else:
            raise AssertionError
        assert torch.load({str(file)!r}, map_location="neuron:1").device.index == 1
        """,
        env={"NEURON_RT_NUM_CORES": "2"},
    )


def test_checkpoint_restores_the_device_generator() -> None:
    torch.neuron.init()
    assert torch.neuron._initialized is True
    x = torch.ones(100, device="neuron", requires_grad=True)

    def block(value: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(value, 0.5) * value

    torch.manual_seed(0)
    block(x).sum().backward()
    expected, x.grad = x.grad, None
    torch.manual_seed(0)
    torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False).sum().backward()
    assert torch.equal(x.grad, expected)
