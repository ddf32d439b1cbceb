"""Settling the emulated instance: emulate(), variables, and what is refused."""

import pytest
import torch

import torchneuron
from torchneuron.device import configuration
from torchneuron.errors import LateConfigurationError


def test_emulate_comes_too_late_after_first_use() -> None:
    torch.neuron.init()
    with pytest.raises(LateConfigurationError) as caught:
        torchneuron.emulate(instance="trn2.48xlarge", lnc=1)
    text = str(caught.value)
    assert "trn2.48xlarge" in text and "trn2.3xlarge" in text and "hint: " in text
    assert torch.neuron.device_count() == 4


def test_settled_instance_can_be_described() -> None:
    assert configuration.settled().name == "trn2.3xlarge"
    assert configuration.describe() == "the emulated trn2.3xlarge"


def test_emulate_before_first_use(script) -> None:
    script(
        """
        import torch, torchneuron
        torchneuron.emulate(instance="trn2.48xlarge")
        assert not torch.neuron.is_initialized()
        assert torch.neuron.device_count() == 64
        """
    )


def test_emulate_may_be_called_again_before_first_use(script) -> None:
    script(
        """
        import torch, torchneuron
        torchneuron.emulate("trn2.48xlarge", lnc=2)
        torchneuron.emulate(lnc=1)
        assert torch.neuron.device_count() == 8
        assert torch.neuron.get_device_properties().lnc == 1
        """
    )


def test_emulate_is_not_undone_by_a_refused_one(script) -> None:
    script(
        """
        import torch, torchneuron
        torchneuron.emulate("trn2.48xlarge")
        for wrong in ({"instance": "trn2.3xlareg"}, {"instance": "trn1.2xlarge"}, {"lnc": 4}):
            try:
                torchneuron.emulate(**wrong)
            except torchneuron.NeuronError as error:
                assert "hint: " in str(error)
            else:
                raise AssertionError(wrong)
        assert torch.neuron.device_count() == 64
        """
    )


def test_emulate_beats_the_environment(script) -> None:
    script(
        """
        import torch, torchneuron
        torchneuron.emulate("trn2.48xlarge")
        assert torch.neuron.device_count() == 64
        """,
        env={"TORCHNEURON_INSTANCE": "trn2.3xlarge"},
    )


def test_more_than_127_devices_name_the_variable(script) -> None:
    script(
        """
        import torch, torchneuron
        from torchneuron.errors import CoreSelectionError
        try:
            torchneuron.emulate("trn2.48xlarge", lnc=1)
        except CoreSelectionError as error:
            assert "127" in str(error) and "NEURON_RT_VISIBLE_CORES" in str(error)
        else:
            raise AssertionError
        """
    )


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({"NEURON_RT_NUM_CORES": "2"}, 2),
        ({"NEURON_RT_VISIBLE_CORES": "1,3"}, 2),
        ({"NEURON_RT_VISIBLE_CORES": "2", "NEURON_RT_NUM_CORES": "4"}, 1),
        (
            {
                "TORCHNEURON_INSTANCE": "trn2.48xlarge",
                "NEURON_LOGICAL_NC_CONFIG": "1",
                "NEURON_RT_VISIBLE_CORES": "0-126",
            },
            127,
        ),
    ],
)
def test_variables_choose_the_devices(script, variables: dict[str, str], count: int) -> None:
    script(
        f"""
        import torch
        assert torch.neuron.device_count() == {count}
        last = torch.device("neuron", {count - 1})
        assert torch.ones(2, device=last).device == last
        """,
        env=variables,
    )


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"TORCHNEURON_INSTANCE": "trn2.3xlarg"}, "trn2.3xlarge"),
        ({"TORCHNEURON_STRICTT": "error"}, "TORCHNEURON_STRICT"),
        ({"TORCHNEURON_STRICT": "loud"}, "off | warn | error"),
        ({"TORCHNEURON_TARGET": "torch_neuronx_2_3"}, "torch_neuronx_2_33"),
        ({"NEURON_RT_VISIBLE_CORES": "9"}, "NEURON_RT_VISIBLE_CORES"),
        ({"NEURON_RT_NUM_CORES": "many"}, "NEURON_RT_NUM_CORES"),
        ({"TORCHNEURON_RUNTIME": "nrt"}, "TORCHNEURON_RUNTIME"),
    ],
)
def test_bad_variables_speak_at_first_use_only(script, variables, named: str) -> None:
    process = script(
        """
        import torch, torchneuron
        torch.manual_seed(0)
        assert torch.neuron.device_count() == 0
        for attempt in range(2):
            try:
                torch.ones(2, device="neuron")
            except torchneuron.NeuronError as error:
                print(error)
            else:
                raise AssertionError
        """,
        env=variables,
    )
    assert process.stdout.count(named) >= 2 and "hint: " in process.stdout
    assert process.stderr == ""
