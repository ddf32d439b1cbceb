import dataclasses
import re
from pathlib import Path

import pytest

from torchneuron import config
from torchneuron.errors import ConfigError, UnknownVariableError

BAD = [
    ("TORCHNEURON", "maybe", "0 (off)"),
    ("TORCHNEURON_STRICT", "eror", "off | warn | error"),
    ("TORCHNEURON_EAGER", "lazy", "direct | lowered"),
    ("TORCHNEURON_RUNTIME", "pjrt:", "pjrt:PATH"),
    ("TORCHNEURON_CACHE_MAX_BYTES", "10 gallons", "a number"),
    ("TORCHNEURON_SHM", "2", "0 | 1"),
    ("NEURON_RT_NUM_CORES", "-1", "0 (all)"),
    ("NEURON_LOGICAL_NC_CONFIG", "3", "1 | 2"),
    ("NEURON_RT_VIRTUAL_CORE_SIZE", "0", "1 | 2"),
    ("NEURON_RT_VISIBLE_CORES", "3-1", "0-3,5"),
    ("NEURON_RT_VISIBLE_CORES", "0,,1", "0-3,5"),
    ("NEURON_RT_VISIBLE_CORES", "1,0-2", "0-3,5"),
    ("NEURON_RT_VISIBLE_CORES", "0-99999999999", "0-3,5"),
    ("NEURON_RT_VISIBLE_CORES", "\u00b2", "0-3,5"),
]


def test_defaults_when_nothing_is_set() -> None:
    loaded = config.load({})
    assert (loaded.instance, loaded.strict, loaded.target) == (
        "trn2.3xlarge",
        "warn",
        "torch_neuronx_2_33",
    )
    assert (loaded.enabled, loaded.lnc, loaded.visible_cores) == (None, None, None)


def test_config_has_one_field_per_setting() -> None:
    fields = {field.name for field in dataclasses.fields(config.Config)}
    assert fields == {setting.key for setting in config.SETTINGS}
    assert len(config.SETTINGS) == len(fields)


@pytest.mark.parametrize(
    ("text", "cores"),
    [("2", (2,)), ("0-3,5", (0, 1, 2, 3, 5)), ("6, 1-2", (6, 1, 2)), ("4-4", (4,))],
)
def test_visible_cores_keep_the_written_order(text: str, cores: tuple[int, ...]) -> None:
    assert config.load({"NEURON_RT_VISIBLE_CORES": text}).visible_cores == cores


@pytest.mark.parametrize(("text", "size"), [("5", 5), ("2K", 2000), ("3GiB", 3 * 2**30)])
def test_sizes_take_units(text: str, size: int) -> None:
    assert config.load({"TORCHNEURON_CACHE_MAX_BYTES": text}).cache_max_bytes == size


@pytest.mark.parametrize(("name", "text", "allowed"), BAD)
def test_bad_value_names_variable_value_and_allowed(name: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load({name: text})
    assert re.match(rf"{name} has the value `{re.escape(text)}`: .+", caught.value.message)
    assert f"allowed: {allowed}" in caught.value.message or allowed in caught.value.message
    assert caught.value.hint


def test_near_miss_of_a_choice_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        config.load({"TORCHNEURON_STRICT": "eror"})
    assert caught.value.hint == "did you mean `error`?"


def test_unknown_variable_is_an_error_with_the_near_one() -> None:
    with pytest.raises(UnknownVariableError, match="TORCHNEURON_INSTANSE") as caught:
        config.load({"TORCHNEURON_INSTANSE": "trn2.3xlarge"})
    assert caught.value.hint == "did you mean `TORCHNEURON_INSTANCE`?"


@pytest.mark.parametrize("name", ["TORCHNEURON_FOO", "TORCHNEURON_", "TORCHNEURON_X"])
def test_the_part_that_all_names_share_makes_no_near_miss(name: str) -> None:
    with pytest.raises(UnknownVariableError) as caught:
        config.load({name: "1"})
    assert caught.value.hint.startswith("known are TORCHNEURON, ")


def test_variables_of_others_and_of_the_build_are_left_alone() -> None:
    assert config.load({"NEURON_NEW": "1", "TORCHNEURONISH": "1", "TORCHNEURON_SANITIZE": "1"})


def test_empty_value_counts_as_unset() -> None:
    assert config.load({"TORCHNEURON_INSTANCE": " "}).instance == "trn2.3xlarge"


def test_older_name_of_lnc_is_accepted_and_contradiction_refused() -> None:
    assert config.load({"NEURON_RT_VIRTUAL_CORE_SIZE": "1"}).lnc == 1
    both = {"NEURON_RT_VIRTUAL_CORE_SIZE": "1", "NEURON_LOGICAL_NC_CONFIG": "2"}
    with pytest.raises(ConfigError, match="contradict") as caught:
        config.load(both)
    assert "NEURON_RT_VIRTUAL_CORE_SIZE" in caught.value.hint


def test_runtime_keeps_the_case_of_a_path() -> None:
    assert config.load({"TORCHNEURON_RUNTIME": "PJRT:/opt/Plugin.so"}).runtime == (
        "pjrt:/opt/Plugin.so"
    )
    assert config.load({"TORCHNEURON_RUNTIME": "HOST"}).runtime == "host"


def test_settings_show_value_and_origin_and_never_raise() -> None:
    environ = {
        "NEURON_RT_VIRTUAL_CORE_SIZE": "1",
        "TORCHNEURON_STRICT": "loud",
        "TORCHNEURON_X": "1",
        "NEURON_RT_VISIBLE_CORES": "0-2",
    }
    rows = {row.name: row for row in config.settings(environ)}
    assert rows["NEURON_LOGICAL_NC_CONFIG"].value == "1"
    assert rows["NEURON_LOGICAL_NC_CONFIG"].origin == "environment (NEURON_RT_VIRTUAL_CORE_SIZE)"
    assert rows["NEURON_RT_VISIBLE_CORES"].value == "0,1,2"
    assert rows["TORCHNEURON_INSTANCE"].origin == "default"
    assert "off | warn | error" in rows["TORCHNEURON_STRICT"].problem
    assert "TORCHNEURON_X" in rows["TORCHNEURON_X"].problem


@pytest.mark.parametrize(
    ("text", "switch"), [("1", "on"), ("0", "off"), ("", "auto"), ("maybe", "auto"), ("On", "on")]
)
def test_autoload_switch_never_raises(
    monkeypatch: pytest.MonkeyPatch, text: str, switch: str
) -> None:
    monkeypatch.setenv("TORCHNEURON", text)
    assert config.autoload_switch() == switch


def test_other_questions_of_startup_take_a_bad_value_as_unset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (config.autoload_prefer(), config.autoload_alias()) == (False, True)
    monkeypatch.setenv("TORCHNEURON_PREFER", "1")
    monkeypatch.setenv("TORCHNEURON_ALIAS", "0")
    assert (config.autoload_prefer(), config.autoload_alias()) == (True, False)
    monkeypatch.setenv("TORCHNEURON_PREFER", "x")
    monkeypatch.setenv("TORCHNEURON_ALIAS", "x")
    assert (config.autoload_prefer(), config.autoload_alias()) == (False, True)


def test_torch_autoload_and_no_color_follow_their_conventions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert config.torch_autoload_enabled()
    assert not config.no_color()
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not config.torch_autoload_enabled()
    assert config.no_color()


def test_every_setting_is_documented_and_our_pages_exist() -> None:
    root = Path(__file__).resolve().parent.parent
    for setting in config.SETTINGS:
        assert setting.description.endswith(".")
        if setting.documented.startswith("docs/"):
            assert setting.name in (root / setting.documented).read_text()
