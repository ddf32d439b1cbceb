"""The current device: counting, choosing, waiting, and what is refused."""

import threading

import pytest
import torch

from torchneuron.errors import ArgumentError, ConfigError, DeviceIndexError


def test_default_instance_has_four_devices() -> None:
    assert torch.neuron.is_available()
    assert torch.neuron.device_count() == 4
    assert torch.neuron.current_device() == 0
    assert torch.neuron.is_initialized()


@pytest.mark.parametrize("spelling", [2, "neuron:2", torch.device("neuron", 2)])
def test_set_device_takes_every_spelling(spelling: object) -> None:
    torch.neuron.set_device(spelling)
    assert torch.neuron.current_device() == 2
    assert torch.empty(1, device="neuron").device.index == 2


def test_set_device_ignores_a_negative_index() -> None:
    torch.neuron.set_device(1)
    torch.neuron.set_device(-1)
    assert torch.neuron.current_device() == 1


def test_current_device_belongs_to_its_thread() -> None:
    torch.neuron.set_device(3)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.neuron.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]


def test_device_context_switches_and_restores() -> None:
    with torch.neuron.device(1):
        assert torch.neuron.current_device() == 1
        with torch.neuron.device("neuron:3"):
            assert torch.neuron.current_device() == 3
        with torch.neuron.device(None), torch.neuron.device(-1), torch.neuron.device("neuron"):
            assert torch.neuron.current_device() == 1
    assert torch.neuron.current_device() == 0


def test_device_context_restores_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), torch.neuron.device(2):
        raise ZeroDivisionError
    assert torch.neuron.current_device() == 0


def test_one_device_context_object_may_nest_in_itself() -> None:
    context = torch.neuron.device(2)
    with context:
        torch.neuron.set_device(1)
        with context:
            assert torch.neuron.current_device() == 2
        assert torch.neuron.current_device() == 1
    assert torch.neuron.current_device() == 0


def test_device_of_follows_tensors_and_storages() -> None:
    tensor = torch.ones(2, device="neuron:2")
    for obj in (tensor, tensor.untyped_storage()):
        with torch.neuron.device_of(obj):
            assert torch.neuron.current_device() == 2
    with torch.neuron.device_of(torch.ones(1)):
        assert torch.neuron.current_device() == 0


def test_synchronize_checks_its_device() -> None:
    torch.neuron.synchronize()
    torch.neuron.synchronize("neuron:3")
    with pytest.raises(DeviceIndexError):
        torch.neuron.synchronize(4)


@pytest.mark.parametrize(
    "call",
    [
        torch.neuron.set_device,
        torch.neuron.device,
        torch.neuron.get_device_properties,
        torch.neuron.get_device_name,
        torch.neuron.get_device_capability,
        torch.neuron.memory_stats,
        torch.neuron.mem_get_info,
        torch.neuron.get_rng_state,
        torch.neuron.current_stream,
        torch.neuron.default_stream,
        torch.neuron.Stream,
    ],
)
def test_absent_device_is_refused_alike_everywhere(call: object) -> None:
    with pytest.raises(DeviceIndexError) as caught:
        call("neuron:9")  # type: ignore[operator]
    text = str(caught.value)
    for expected in ("neuron:9", "4 devices", "trn2.3xlarge", "TORCHNEURON_INSTANCE", "hint: "):
        assert expected in text


@pytest.mark.parametrize("wrong", ["cpu", torch.device("meta"), "nonsense", 1.5, True, object()])
def test_what_is_no_neuron_device_is_refused(wrong: object) -> None:
    with pytest.raises(ArgumentError, match="hint: "):
        torch.neuron.set_device(wrong)


def test_set_device_needs_an_index() -> None:
    with pytest.raises(ArgumentError, match="names no device index"):
        torch.neuron.set_device("neuron")


def test_operators_refuse_an_absent_device_with_count_and_instance() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)neuron:9.*trn2\.3xlarge.*4 device"):
        torch.ones(2, device="neuron:9")


def test_bad_variable_is_one_clear_error_at_first_use(script, tmp_path) -> None:
    file = tmp_path / "saved.pt"
    torch.save(torch.ones(2, device="neuron:1"), file)
    script(
        f"""
        import torch, torchneuron
        from torchneuron.errors import ConfigError
        assert torch.neuron.device_count() == 0
        assert not torch.neuron.is_available() and not torch.neuron.is_initialized()
        assert not torch.accelerator.is_available()
        torch.manual_seed(0); torch.neuron.manual_seed(0); torch.neuron.seed_all()
        assert torch.neuron.memory_allocated() == 0 and torch.neuron.memory_stats() == {{}}
        torch.neuron.empty_cache()
        for use in (torch.neuron.current_device, torch.neuron.init,
                    lambda: torch.neuron.set_device(0),
                    lambda: torch.ones(2, device="neuron"),
                    lambda: torch.ones(2).to("neuron"),
                    lambda: torch.nn.Linear(2, 2).neuron(),
                    lambda: torch.load({str(file)!r}),
                    torch.neuron.get_device_properties, torch.neuron.mem_get_info):
            try:
                use()
            except ConfigError as error:
                assert "NEURON_LOGICAL_NC_CONFIG" in str(error) and "hint: " in str(error)
            else:
                raise AssertionError(use)
        """,
        env={"NEURON_LOGICAL_NC_CONFIG": "7"},
    )


def test_config_error_is_a_value_error() -> None:
    assert issubclass(ConfigError, ValueError)
